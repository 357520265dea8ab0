//! Blocks that go from mapping to mapping in one pass.

use crate::LINE_BYTES;
use crate::error::Result;
use crate::mapping::Mapping;
use crate::state::InFlight;

/// Bytes of a block.
const BLOCK: usize = 4096;

impl Mapping {
    /// Writes so many blocks like [`write`](Mapping::write), out of another mapping. Bytes that
    /// change meanwhile arrive old or new: the caller's protocol finds that out.
    ///
    /// # Errors
    /// `OutOfRange`, `Media`, of what is read; then anything may be written there.
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn copy_blocks(
        &self,
        offset: u64,
        from: &Mapping,
        at: u64,
        count: usize,
    ) -> Result<InFlight> {
        let len = count * BLOCK;
        assert!(offset.is_multiple_of(LINE_BYTES as u64), "whole lines");
        assert!(!std::ptr::eq(self, from) || offset.abs_diff(at) >= len as u64, "ranges apart");
        // one access for either memory
        self.charge_write(offset, len);
        match (self.direct(offset, len), cfg!(feature = "recorder")) {
            (Some(target), false) => {
                let source = from.readable(at, len)?;
                // SAFETY: both ranges are mapped and lie apart; the target is aligned to lines, and
                // the kernels were chosen for this CPU.
                unsafe { (self.kernels.copy)(target, source, len / LINE_BYTES) };
                self.flush_lines(target, offset, len);
            }
            _ => {
                let mut room = [0; BLOCK];
                for done in (0..len as u64).step_by(BLOCK) {
                    from.copy_out(at + done, &mut room)?;
                    self.store_lines(offset + done, &room);
                }
            }
        }
        from.seen(at, len)?;
        Ok(InFlight::none())
    }

    /// Whole lines, to wherever they go.
    #[cfg_attr(feature = "recorder", track_caller)]
    fn store_lines(&self, offset: u64, lines: &[u8]) {
        match self.direct(offset, lines.len()) {
            Some(target) => self.write_lines(target, offset, lines),
            None => self.store_to_both(offset, lines, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, MapOptions, fence};

    fn mapping(dir: &std::path::Path, name: &str, blocks: u64) -> Mapping {
        let path = dir.join(name);
        std::fs::File::create(&path).unwrap().set_len(blocks * BLOCK as u64).unwrap();
        Mapping::open(&path, &MapOptions { process: true, ..MapOptions::default() }).unwrap()
    }

    #[test]
    fn blocks_arrive() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (mapping(dir.path(), "from", 8), mapping(dir.path(), "to", 8));
        let bytes: Vec<u8> = (0..8 * BLOCK).map(|at| (at * 7 + at / 251) as u8).collect();
        let _ = fence(from.write(0, &bytes));
        let done = to.copy_blocks(BLOCK as u64, &from, 3 * BLOCK as u64, 5).unwrap();
        let _ = fence(done);
        let mut read = vec![0; 8 * BLOCK];
        to.read(0, &mut read).unwrap();
        assert!(read[BLOCK..6 * BLOCK] == bytes[3 * BLOCK..]);
        assert!(read[..BLOCK].iter().chain(&read[6 * BLOCK..]).all(|byte| *byte == 0));
        let behind = to.copy_blocks(0, &from, 4 * BLOCK as u64, 5);
        assert!(matches!(behind, Err(Error::OutOfRange { .. })), "{behind:?}");
    }
}

//! Blocks that go from mapping to mapping in one pass.

use crate::error::Result;
use crate::mapping::Mapping;
use crate::state::InFlight;
use crate::{LINE_BYTES, crc32c};

/// Bytes of a block.
const BLOCK: usize = 4096;

impl Mapping {
    /// Writes blocks like [`write_blocks`](Mapping::write_blocks), out of another mapping: as many
    /// as there are `sums`, which get the CRC-32C of each. Bytes that change meanwhile arrive old
    /// or new, and the sum may be that of neither: the caller's protocol finds that out.
    ///
    /// # Errors
    /// `OutOfRange`, `Media`, of what is read; then anything may be written there.
    #[cfg_attr(feature = "recorder", track_caller)]
    pub fn copy_blocks(
        &self,
        offset: u64,
        from: &Mapping,
        at: u64,
        sums: &mut [u32],
    ) -> Result<InFlight> {
        let len = sums.len() * BLOCK;
        assert!(offset.is_multiple_of(LINE_BYTES as u64), "whole lines");
        assert!(!std::ptr::eq(self, from) || offset.abs_diff(at) >= len as u64, "ranges apart");
        // one access for either memory
        self.charge_write(offset, len);
        let mut room = [0; BLOCK];
        for (index, sum) in sums.iter_mut().enumerate() {
            let done = (index * BLOCK) as u64;
            let target = self.direct(offset + done, BLOCK);
            let source = match (target, cfg!(feature = "recorder")) {
                (Some(_), false) => from.readable(at + done, BLOCK)?,
                _ => {
                    from.copy_out(at + done, &mut room)?;
                    room.as_ptr()
                }
            };
            *sum = match target {
                Some(target) => {
                    #[cfg(feature = "recorder")]
                    self.record_lines(offset + done, &room);
                    // SAFETY: both ranges are mapped, or the source is a buffer of that length;
                    // they lie apart; the target is aligned to lines, and the kernels were chosen
                    // for this CPU.
                    let state =
                        unsafe { (self.kernels.copy_crc)(target, source, BLOCK / LINE_BYTES, !0) };
                    self.flush_lines(target, offset + done, BLOCK);
                    !state
                }
                None => {
                    self.store_to_both(offset + done, &room, true);
                    crc32c(0, &room)
                }
            };
        }
        from.seen(at, len)?;
        Ok(InFlight::none())
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
    fn blocks_arrive_with_their_sums() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (mapping(dir.path(), "from", 8), mapping(dir.path(), "to", 8));
        let bytes: Vec<u8> = (0..8 * BLOCK).map(|at| (at * 7 + at / 251) as u8).collect();
        let _ = fence(from.write(0, &bytes));
        let mut sums = [0; 5];
        let done = to.copy_blocks(BLOCK as u64, &from, 3 * BLOCK as u64, &mut sums).unwrap();
        let _ = fence(done);
        let mut read = vec![0; 8 * BLOCK];
        to.read(0, &mut read).unwrap();
        assert!(read[BLOCK..6 * BLOCK] == bytes[3 * BLOCK..]);
        assert!(read[..BLOCK].iter().chain(&read[6 * BLOCK..]).all(|byte| *byte == 0));
        let expected: Vec<u32> = bytes[3 * BLOCK..].chunks(BLOCK).map(|it| crc32c(0, it)).collect();
        assert_eq!(sums.to_vec(), expected);
        let behind = to.copy_blocks(0, &from, 4 * BLOCK as u64, &mut sums);
        assert!(matches!(behind, Err(Error::OutOfRange { .. })), "{behind:?}");
    }
}

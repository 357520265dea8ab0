//! The content of one file: shared within a pool, else read and written.

use std::path::Path;

use super::Copy;
use crate::content::Content;
use crate::error::Result;
use crate::inside::Opening;
use crate::keep;
use crate::signals;

/// Bytes that a pool is asked to copy at once.
const SHARED_BYTES_MAX: u64 = 64 << 20;
impl Copy<'_> {
    /// Copies the content of `from` to `path`; errors speak of `to`, the name that is meant.
    pub(super) fn fill(&mut self, from: &Path, path: &Path, to: &Path, how: Opening) -> Result<()> {
        let mut source = self.from.open(from, Opening::Read).map_err(self.at_from(from))?;
        let mut target = self.to.open(path, how).map_err(self.at_to(to))?;
        if path != to {
            keep::hold(&target);
        }
        self.bar.expect(source.len().map_err(self.at_from(from))?);
        if self.same && self.share((from, &source), (to, &target))? {
            return Ok(());
        }
        if !self.args.sparse {
            return self.fill_range((from, &mut source), (to, &mut target), (0, u64::MAX));
        }
        let mut offset = 0;
        while let Some(data) = source.next_data(offset).map_err(self.at_from(from))? {
            source.go_to(data.0).map_err(self.at_from(from))?;
            target.go_to(data.0).map_err(self.at_to(to))?;
            self.fill_range((from, &mut source), (to, &mut target), data)?;
            offset = data.1;
        }
        let bytes = source.len().map_err(self.at_from(from))?;
        target.set_len(bytes).map_err(self.at_to(to))
    }

    /// Has the pool copy what it holds itself; false if it does not.
    fn share(
        &mut self,
        (from, source): (&Path, &Content),
        (to, target): (&Path, &Content),
    ) -> Result<bool> {
        let mut offset = 0;
        // what is wrong with the source is said of the target: nobody else knows
        while let Some(bytes) =
            target.take_from(source, offset, SHARED_BYTES_MAX).map_err(self.at_to(to))?
        {
            if bytes == 0 {
                return Ok(source.len().map_err(self.at_from(from))? <= offset);
            }
            offset += bytes;
            self.bar.add(bytes);
            signals::goes_on()?;
        }
        Ok(false)
    }

    fn fill_range(
        &mut self,
        (from, source): (&Path, &mut Content),
        (to, target): (&Path, &mut Content),
        (start, end): (u64, u64),
    ) -> Result<()> {
        let (at_from, at_to) = (self.at_from(from), self.at_to(to));
        let mut offset = start;
        while offset < end {
            let most = (end - offset).min(self.buffer.len() as u64) as usize;
            let piece = &mut self.buffer[..most];
            let bytes = source.read(piece, offset).map_err(&at_from)?;
            if bytes == 0 {
                break;
            }
            target.write(&piece[..bytes], offset).map_err(&at_to)?;
            offset += bytes as u64;
            self.bar.add(bytes as u64);
            signals::goes_on()?;
        }
        Ok(())
    }
}

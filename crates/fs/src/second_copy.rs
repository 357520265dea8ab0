//! Blocks of a mirrored pool: read in the mirror where the first copy is damaged, and compared.

use crate::core::Core;
use crate::error::Result;
use crate::patches::Patches;
use pool::{BLOCK_BYTES, BlockAddr, Which};

const BLOCK: usize = BLOCK_BYTES as usize;

/// How it ends what is told of a copy that is whole again.
pub const WRITTEN_AGAIN: &str = "written again from the other";

/// What the copies of a block are.
pub enum Copies {
    /// As they should be.
    Whole,
    /// One of them was not, and has been written again, or not.
    Damaged(Which, bool),
    /// None of them is.
    Lost,
}

impl Core {
    /// A whole block with patches over it, from its mirror, if that fits its checksum. The first
    /// copy is left as it is: whoever stores into the block may be about to.
    #[cold]
    pub fn read_mirror(
        &self,
        addr: BlockAddr,
        patches: Option<&Patches>,
        crc: u32,
    ) -> Option<[u8; BLOCK]> {
        let (_, seen) = self.fitting_copy(addr, Which::Mirror, patches, crc)?;
        let place = addr.place();
        let what = format!("{place}: damaged, or not to be read; read from its mirror");
        self.pool.note_second_copy(what);
        Some(seen)
    }

    /// A copy of a block, and what is seen of it, if that fits.
    pub fn fitting_copy(
        &self,
        addr: BlockAddr,
        which: Which,
        patches: Option<&Patches>,
        crc: u32,
    ) -> Option<([u8; BLOCK], [u8; BLOCK])> {
        let mut block = [0; BLOCK];
        let mut found = self.pool.read_copy(addr, which, &mut block).ok()?;
        let mut seen = block;
        if let Some(patches) = patches {
            patches.apply(0, &mut seen);
            found = pmem::crc32c(0, &seen);
        }
        pmem::crc_fits(found, crc).then_some((block, seen))
    }

    /// Verifies a block in all its copies, and if it is to `mend` makes the damaged one what the
    /// other is: then nobody stores there meanwhile.
    ///
    /// # Errors
    /// Where the only copy cannot be read.
    pub fn verify_copies(
        &self,
        addr: BlockAddr,
        patches: Option<&Patches>,
        crc: u32,
        mend: bool,
    ) -> Result<Copies> {
        if !self.pool.is_mirrored(addr) {
            let fits = pmem::crc_fits(self.crc_under(addr, patches)?, crc);
            return Ok(if fits { Copies::Whole } else { Copies::Lost });
        }
        let [first, mirror] = Which::ALL.map(|it| self.fitting_copy(addr, it, patches, crc));
        let (damaged, good) = match (first, mirror) {
            (Some(_), Some(_)) => return Ok(Copies::Whole),
            (Some((good, _)), None) => (Which::Mirror, good),
            (None, Some((good, _))) => (Which::First, good),
            (None, None) => return Ok(Copies::Lost),
        };
        Ok(Copies::Damaged(damaged, mend && self.pool.write_copy(addr, damaged, &good)))
    }

    /// What is wrong with a block, in any of its copies.
    pub fn check_copies(
        &self,
        addr: BlockAddr,
        patches: Option<&Patches>,
        crc: u32,
    ) -> Option<String> {
        // who repairs has all of it in memory of his own
        let mend = self.pool.options().salvage.is_some();
        match self.verify_copies(addr, patches, crc, mend) {
            Ok(Copies::Whole) => None,
            Ok(Copies::Damaged(which, true)) => {
                let what = format!("{}; {WRITTEN_AGAIN}", one_copy(addr, which));
                self.pool.note_second_copy(what);
                None
            }
            Ok(Copies::Damaged(..)) if self.unsettled.lock().contains(&addr) => None,
            Ok(Copies::Damaged(which, _)) => Some(one_copy(addr, which)),
            Ok(Copies::Lost) => Some(format!("the data at {} is damaged", addr.place())),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// What is said of a block of which one copy is damaged.
pub fn one_copy(addr: BlockAddr, damaged: Which) -> String {
    let copies = match damaged {
        Which::First => "the first copy is damaged, its mirror is whole",
        Which::Mirror => "its mirror is damaged, the first copy is whole",
    };
    format!("{}: {copies}", addr.place())
}

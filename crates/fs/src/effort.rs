//! How hard who writes back tries.
//!
//! A block that is written again and again is stale on the tier as soon as it is there: to write it
//! back early costs a write of the device, and a copy, for nothing. So above the share of a slice
//! that may be in use (`write_back_percent`) blocks are written back at leisure while somebody
//! changes something: in passes, each of which moves those that nobody used since the one before,
//! and the less often the more room is left. All that can be moved is moved, by two threads, once
//! those who take blocks would have to pay for them, when somebody waits, and when nobody has
//! changed anything for a while: then nobody is disturbed.

use crate::core::Core;
use crate::error::Result;
use crate::write_back::SliceRoom;
use crate::writer::LOOK_EVERY;
use std::time::{Duration, Instant};

/// The longest time from the beginning of a pass to the next one.
const PASS_EVERY_MAX: Duration = Duration::from_secs(5);
/// Who changes nothing for so long has stopped.
const REST: Duration = Duration::from_millis(50);

const _: () = assert!(REST.as_nanos() > LOOK_EVERY.as_nanos());

/// How hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// There is enough room.
    None,
    /// A pass, and then others.
    Leisure,
    /// All that can be moved.
    Full,
}

/// What one thread tries.
#[derive(Debug, Default)]
pub struct Efforts {
    /// When something was seen to have been changed last.
    stirred: Option<Instant>,
    /// The end of the pass in the slice's line, and when it began.
    pass: Option<(u64, Instant)>,
}

/// How long a pass may take: all of it at the share from which some are written back, nothing where
/// those who take blocks begin to pay.
fn pass_every(room: SliceRoom, percent: u64, percent_unpaid: u64) -> Duration {
    let from = room.blocks * percent / 100;
    let all = (room.blocks * percent_unpaid / 100).saturating_sub(from).max(1);
    let left = all.saturating_sub(room.used().saturating_sub(from));
    PASS_EVERY_MAX.mul_f64(left as f64 / all as f64)
}

impl Efforts {
    /// What is to be tried now; `is_wanted`: somebody waits.
    pub fn next(&mut self, core: &Core, slice: usize, is_wanted: bool, now: Instant) -> Effort {
        let own = &core.write_back;
        if own.slices[slice].pace.was_stirred() {
            self.stirred = Some(now);
        }
        let room = core.room_in(slice);
        if is_wanted {
            return Effort::Full;
        }
        if !room.is_above(own.percent()) {
            return Effort::None;
        }
        let is_at_rest = self.stirred.is_none_or(|stirred| now - stirred > REST);
        if is_at_rest || room.is_above(own.percent_unpaid()) {
            return Effort::Full;
        }
        Effort::Leisure
    }
}

impl Core {
    /// Goes on with the pass, or begins the next one if it is time; whether there is more of it.
    pub fn write_pass(&self, slice: usize, efforts: &mut Efforts, now: Instant) -> Result<bool> {
        let Some(tier) = &self.tier else { return Ok(false) };
        self.pool.check_writable()?;
        let line = &self.write_back.slices[slice].line;
        let end = match efforts.pass {
            Some((end, _)) if !line.has_passed(end) => end,
            Some((_, begun)) if now - begun < self.pass_every(slice) => return Ok(false),
            _ => {
                self.deal_all()?;
                let end = line.end();
                efforts.pass = Some((end, now));
                end
            }
        };
        Ok(self.write_batch(tier, slice, end)?.is_some_and(|moved| moved > 0))
    }

    fn pass_every(&self, slice: usize) -> Duration {
        let own = &self.write_back;
        pass_every(self.room_in(slice), own.percent(), own.percent_unpaid())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::pace::Pacing;
    use crate::types::Ino;
    use crate::{Creation, FileSystem, NewNode};

    #[test]
    fn passes_come_the_sooner_the_less_room_is_left() {
        let every = |used: u64| {
            let room = SliceRoom { blocks: 1000, free: 1000 - used, copies: 0 };
            pass_every(room, 30, 65).as_millis()
        };
        assert_eq!([0, 300].map(every), [5000, 5000]);
        assert_eq!(every(475), 2500, "half-way");
        assert_eq!([650, 651, 1000].map(every), [0, 0, 0], "and without a pause at last");
        let nothing = SliceRoom { blocks: 0, free: 0, copies: 0 };
        assert_eq!(pass_every(nothing, 30, 65), PASS_EVERY_MAX);
        let always = SliceRoom { blocks: 10, free: 5, copies: 0 };
        assert_eq!(pass_every(always, 100, 100), PASS_EVERY_MAX, "there is nothing in between");
    }

    fn moved(fs: &FileSystem) -> u64 {
        fs.tier_stats().unwrap().moved_blocks
    }

    /// Goes on with a pass to its end, if it is time for one.
    fn pass(fs: &FileSystem, efforts: &mut Efforts, now: Instant) -> u64 {
        let before = moved(fs);
        while fs.core.write_pass(0, efforts, now).unwrap() {}
        moved(fs) - before
    }

    #[test]
    fn what_is_written_again_and_again_stays_while_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let fs = crate::moves::tests::made(&dir.path().join("pool"));
        let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
        let [cold, hot] = [b"cold" as &[u8], b"hot"].map(|name| {
            fs.open(fs.create(Ino::ROOT, name, NewNode::File, by).unwrap().ino).unwrap()
        });
        let write = |file: &_, percent: u64| {
            let blocks = fs.core.room_in(0).blocks * percent / 100;
            fs.write(file, 0, &vec![7; (blocks * pool::BLOCK_BYTES) as usize]).unwrap();
            blocks
        };
        let (mut efforts, start) = (Efforts::default(), Instant::now());
        let next = |efforts: &mut Efforts, ms: u64| {
            efforts.next(&fs.core, 0, false, start + Duration::from_millis(ms))
        };
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(next(&mut efforts, 0), Effort::None);
        fs.core.write_back.set_pace(0, Pacing::Watched);
        let few = write(&cold, 10);
        write(&hot, 33);
        assert_eq!(next(&mut efforts, 0), Effort::Leisure);
        assert_eq!(pass(&fs, &mut efforts, at(0)), 0, "all were used");
        assert_eq!(pass(&fs, &mut efforts, at(100)), 0, "it is too early");
        write(&hot, 33);
        assert_eq!(pass(&fs, &mut efforts, at(5000)), few, "those that are cold");
        // nobody changes anything any more, or somebody waits, or too much is in use
        assert_eq!(next(&mut efforts, 5000), Effort::Leisure);
        assert_eq!(next(&mut efforts, 5040), Effort::Leisure);
        assert_eq!(next(&mut efforts, 5051), Effort::Full);
        write(&hot, 33);
        assert_eq!(next(&mut efforts, 5060), Effort::Leisure);
        assert_eq!(efforts.next(&fs.core, 0, true, at(5060)), Effort::Full);
        write(&hot, 70);
        assert_eq!(next(&mut efforts, 5070), Effort::Full);
    }
}

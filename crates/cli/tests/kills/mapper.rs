//! A client that stores to a shared mapping: a Python program, and a model of its file.
//!
//! Each step stores one number to some words of the file, each whole, and is acknowledged when
//! `msync` returned. A word is what was acknowledged last or, of the step under way, the new one.

use std::path::Path;
use std::process::Command;

use crate::model::Random;

/// Words of the file: 16 pages.
const WORDS: u64 = 16 * 512;
/// Words that a step stores to.
const STORES: u64 = 5;
/// How the file is called.
const NAME: &str = "mapped";

/// The program: seed, first number, path. Its generator of numbers is [`Random`].
pub const PROGRAM: &str = r#"
import ctypes, mmap, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
mask, seed, path = (1 << 64) - 1, int(sys.argv[1]), sys.argv[2]
state = seed * 0x9E3779B97F4A7C15 & mask | 1
def below(limit):
    global state
    state ^= state >> 12
    state ^= state << 25 & mask
    state ^= state >> 27
    return ((state * 0x2545F4914F6CDD1D & mask) >> 33) % limit
file = os.open(path, os.O_RDWR)
words = memoryview(mmap.mmap(file, WORDS * 8)).cast("Q")
number = 0
while True:
    for _ in range(STORES):
        words[below(WORDS)] = seed << 32 | number
    words.obj.flush()
    os.write(1, b"@ %d 0\n" % number)
    number += 1
"#;

/// The program's command, where Python is installed.
pub fn command(python: &Path, mnt: &Path, seed: u64) -> Command {
    let program = PROGRAM.replace("WORDS", &WORDS.to_string());
    let program = program.replace("STORES", &STORES.to_string());
    let mut command = Command::new(python);
    command.args(["-I", "-S", "-c", &program, &seed.to_string()]).arg(mnt.join(NAME));
    command
}

/// What the file holds.
#[derive(Clone, Debug)]
pub struct Words(Vec<u64>);

impl Words {
    /// Makes the file.
    pub fn new(mnt: &Path) -> Words {
        std::fs::write(mnt.join(NAME), vec![0; WORDS as usize * 8]).unwrap();
        Words(vec![0; WORDS as usize])
    }

    /// Takes over what a process did of which so many steps were acknowledged, and compares.
    pub fn settle(&mut self, mnt: &Path, seed: u64, steps: u64) {
        let mut random = Random::new(seed);
        for number in 0..steps {
            for _ in 0..STORES {
                self.0[random.below(WORDS) as usize] = seed << 32 | number;
            }
        }
        let pending: Vec<u64> = (0..STORES).map(|_| random.below(WORDS)).collect();
        let content = std::fs::read(mnt.join(NAME)).unwrap();
        let found =
            content.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let found: Vec<u64> = found.collect();
        assert_eq!(found.len(), self.0.len(), "words of {NAME}");
        for (at, (found, model)) in (0..).zip(found.iter().zip(&self.0)) {
            let is_new = pending.contains(&at) && *found == seed << 32 | steps;
            assert!(found == model || is_new, "word {at} of {NAME}: {found:#x}, not {model:#x}");
        }
        self.0 = found;
    }
}

//! docs/SEMANTICS.md, executed: each block of code in an empty directory of a mount.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Scratch, has};

const TEXT: &str = include_str!("../../../../docs/SEMANTICS.md");
/// Longest time that one block may take, seconds.
const BLOCK_SECONDS_MAX: &str = "180";

/// A block of code, and the line of the text where it begins.
struct Block {
    language: String,
    code: String,
    line: usize,
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in TEXT.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => {
                let language = language.to_owned();
                open = Some(Block { language, code: String::new(), line: at + 1 });
            }
            (None, Some(block)) => block.code.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block does not end");
    blocks
}

/// Runs a block in `dir`; gives what it said if it failed.
fn run(block: &Block, dir: &Path) -> Result<(), String> {
    let mut command = Command::new("timeout");
    command.arg(BLOCK_SECONDS_MAX);
    match block.language.as_str() {
        "sh" => command.args(["sh", "-euc", &block.code]),
        "python" => {
            let at = "import os.path\nat = lambda name: os.path.join(os.path.curdir, name)\n";
            command.args(["python3", "-c", &format!("{at}{}", block.code)])
        }
        other => panic!("line {}: no way to run {other:?}", block.line),
    };
    let output = command.current_dir(dir).stdin(Stdio::null()).output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "docs/SEMANTICS.md, line {}: {}\n{}{}",
            block.line,
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

#[test]
fn what_the_semantics_say_holds() {
    if !has("python3") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    let blocks = blocks();
    assert!(blocks.len() > 10, "{} blocks only", blocks.len());
    let mut failed = Vec::new();
    for block in &blocks {
        let dir = scratch.mnt().join(block.line.to_string());
        std::fs::create_dir(&dir).unwrap();
        failed.extend(run(block, &dir).err());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    scratch.finish();
}

/// A block that fails is seen to.
#[test]
fn a_block_that_fails_fails_the_test() {
    let dir = tempfile::tempdir().unwrap();
    let block = |language: &str, code: &str| {
        let block = Block { language: language.to_owned(), code: code.to_owned(), line: 1 };
        run(&block, dir.path())
    };
    assert!(block("sh", "false; true").is_err());
    assert!(block("sh", "test -d . && test ! -e x").is_ok());
    if has("python3") {
        assert!(block("python", "assert 1 == 2").is_err());
        assert!(block("python", "assert at('x') == './x'").is_ok());
    }
}

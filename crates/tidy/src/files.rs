//! The files of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// The repository that this crate lies in.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Paths from `root` of all files that are tracked or would be: what git knows and what it does
/// not ignore. Where git cannot say (an unpacked archive), all files but those it never holds.
pub fn list(root: &Path) -> io::Result<Vec<String>> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let mut files = match Command::new("git").arg("-C").arg(root).args(args).output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect()
        }
        _ => walk(root)?,
    };
    // A file that was deleted but not yet committed is listed and not there.
    files.retain(|path| root.join(path).is_file());
    files.sort();
    Ok(files)
}

fn walk(root: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() && !matches!(entry.file_name().to_str(), Some("target" | ".git")) {
                pending.push(path);
            } else if kind.is_file() {
                let path = path.strip_prefix(root).unwrap_or(&path);
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_file_is_among_them_either_way() {
        let me = "crates/tidy/src/files.rs".to_owned();
        assert!(list(&root()).unwrap().contains(&me));
        assert!(walk(&root()).unwrap().contains(&me));
    }
}

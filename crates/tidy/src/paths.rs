//! Paths of the machine that a file was written on.

use crate::Finding;

/// Put together here, so that this file does not find itself.
const MACHINE_PATHS: &[&str] =
    &[concat!("/", "work/"), concat!("/", "root/"), concat!("/tmp/", "target")];

/// Paths in the text of any file that exist on one machine only.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (n, line) in text.lines().enumerate() {
        for machine_path in MACHINE_PATHS {
            if starts_a_path(line, machine_path) {
                let message = format!("{machine_path}: a path of one machine");
                findings.push(Finding::new(path, n + 1, message));
            }
        }
    }
    findings
}

/// Whether `prefix` stands in `line` at the start of a path rather than inside one.
fn starts_a_path(line: &str, prefix: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || "_-.~*?$})]".contains(c);
    line.match_indices(prefix).any(|(at, _)| !line[..at].ends_with(goes_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_a_machine_path_is_found() {
        for machine_path in MACHINE_PATHS {
            assert_eq!(check("x", &format!("a\ncd {machine_path}x")).len(), 1);
            assert_eq!(check("x", &format!("\"{machine_path}x\""))[0].line, 1);
        }
    }

    #[test]
    fn a_folder_of_that_name_elsewhere_is_fine() {
        for machine_path in MACHINE_PATHS {
            assert!(check("x", &format!("$dir{machine_path}x")).is_empty());
            assert!(check("x", &format!("\"${{dir}}{machine_path}x\"")).is_empty());
        }
    }
}

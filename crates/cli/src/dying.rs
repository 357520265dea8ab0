//! Whether a process is on its way out (proc(5), `/proc/PID/stat`).

/// Set in a task's flags when it exits, and when a signal killed it (Linux's `PF_EXITING` and
/// `PF_SIGNALED`).
const EXITING: u64 = 0x4 | 0x400;
/// SIGKILL among the pending signals.
const KILL_PENDING: u64 = 1 << 8;

/// Whether `process` has been killed or is exiting, though its files may still be open.
pub fn is_dying(process: &str) -> bool {
    match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(stat) => says_dying(&stat),
        Err(_) => true,
    }
}

/// `PID (NAME) STATE`, then numbers; the name may hold anything, parentheses too.
fn says_dying(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // In proc(5)'s count, which starts at 1 with the process id.
    let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
    matches!(fields.first(), Some(&("Z" | "X")))
        || number(9).is_some_and(|flags| flags & EXITING != 0)
        || number(31).is_some_and(|pending| pending & KILL_PENDING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_living_and_the_dying_are_told_apart() {
        assert!(!is_dying("self"));
        assert!(is_dying("0"));
        let stat = |state: &str, flags: u64, pending: u64| {
            format!("7 (a) b) {state} 1 7 7 0 -1 {flags}{} {pending} 0", " 0".repeat(21))
        };
        assert!(!says_dying(&stat("S", 0x40_0000, 0)));
        assert!(says_dying(&stat("Z", 0, 0)));
        assert!(says_dying(&stat("R", 0x404, 0)));
        assert!(says_dying(&stat("S", 0, 0x100)));
        assert!(!says_dying("nonsense"));
    }
}

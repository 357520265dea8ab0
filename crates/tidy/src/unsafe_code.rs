//! Where `unsafe` may stand, and what must stand above it.

use crate::{Finding, source::Source};
use std::ops::Range;

/// Where `unsafe` may stand, as path prefixes, each with its reason. A new entry is a decision.
pub const ALLOWED: &[(&str, &str)] = &[
    ("crates/pmem/", "all stores to persistent memory, and its mappings, lie here"),
    ("crates/workers/", "rings shared between threads"),
    (
        "crates/tier/",
        "I/O with buffers that the kernel owns meanwhile, and the mappings of its caches",
    ),
    ("crates/shm/", "mappings of memory shared with other processes, and words in it"),
    ("crates/region/", "memory mapped for plain loads"),
    ("crates/fabric/src/libfabric.rs", "libfabric is C, and uses memory of its callers meanwhile"),
    ("crates/capi/", "pointers that C hands over"),
    (
        "crates/history/src/kernel_doors/",
        "files mapped for loads and stores, and I/O with buffers that the kernel owns meanwhile",
    ),
    ("crates/preload/", "stands in for functions of the C library"),
    ("crates/topology/src/affinity.rs", "the scheduler's system calls on CPU masks"),
];

/// How far above a block its SAFETY line may stand.
const NEAR_LINES: usize = 6;

/// `unsafe` in the wrong place or without its reason.
pub fn check(source: &Source) -> Vec<Finding> {
    let lines: Vec<&str> = source.text.lines().collect();
    let is_allowed = ALLOWED.iter().any(|(prefix, _)| source.path.starts_with(prefix));
    let trait_impls = trait_impls(source);
    let mut findings = Vec::new();
    for at in source.words("unsafe") {
        let line = source.line_of(at);
        if !is_allowed {
            let message = "`unsafe` here is not allowed: see ALLOWED in crates/tidy";
            findings.push(Finding::new(source.path, line, message));
        }
        let after = source.code[at + "unsafe".len()..].trim_start();
        // A trait's own docs say what its unsafe functions ask of callers, for every impl.
        let is_inherited =
            after.starts_with("fn") && trait_impls.iter().any(|body| body.contains(&at));
        if needs_reason(after) && !is_inherited && !has_reason(&lines, line - 1) {
            let message = "`unsafe` without a SAFETY comment or `# Safety` docs above it";
            findings.push(Finding::new(source.path, line, message));
        }
    }
    findings
}

/// Byte ranges of the bodies of `impl Trait for Type`.
fn trait_impls(source: &Source) -> Vec<Range<usize>> {
    let body = |at: usize| {
        let open = at + source.code[at..].find('{')?;
        let is_of_trait = source.code[at..open].split_whitespace().any(|word| word == "for");
        is_of_trait.then(|| open..source.closing_brace(open))
    };
    source.words("impl").into_iter().filter_map(body).collect()
}

/// Whether what follows `unsafe` is a block, an impl, a trait, a function or an extern block; not
/// an attribute, and not the type of a function pointer.
fn needs_reason(after: &str) -> bool {
    let after = match after.strip_prefix("extern") {
        // The name of the ABI, if given, is a literal and so blank between its quotes.
        Some(rest) => rest.trim_start().trim_start_matches(['"', ' ']),
        None => after,
    };
    if let Some(name) = after.strip_prefix("fn") {
        return !name.trim_start().starts_with(['(', '<']);
    }
    ["{", "impl", "trait"].iter().any(|start| after.starts_with(start))
}

/// Whether a reason stands on the line, within a few lines above it, or anywhere in the run of
/// comments and attributes right above it.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let is_reason = |text: &str| text.contains("SAFETY:") || text.contains("# Safety");
    let near = lines[line.saturating_sub(NEAR_LINES)..=line].iter().any(|text| is_reason(text));
    let is_head = |text: &&&str| {
        let text = text.trim_start();
        text.starts_with("//") || text.starts_with("#[")
    };
    near || lines[..line].iter().rev().take_while(is_head).any(|text| is_reason(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PMEM: &str = "crates/pmem/src/map.rs";

    fn findings(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn canary_unsafe_without_a_reason_is_found() {
        for text in [
            "fn f() { unsafe { g() } }",
            "unsafe impl Send for X {}",
            "pub unsafe fn f() {}",
            "unsafe extern \"C\" fn f() {}",
            "unsafe extern \"C\" { fn f(); }",
            "unsafe trait T {}",
        ] {
            assert_eq!(findings(PMEM, text), 1, "{text}");
            assert_eq!(findings(PMEM, &format!("// SAFETY: sound.\n{text}")), 0, "{text}");
            let far = format!("// SAFETY: sound.\nfn a() {{}}\n{}{text}", "\n".repeat(6));
            assert_eq!(findings(PMEM, &far), 1, "{text}");
        }
    }

    #[test]
    fn long_docs_with_a_safety_section_count() {
        let text = format!("/// # Safety\n{}#[inline]\nunsafe fn f() {{}}", "/// x\n".repeat(9));
        assert_eq!(findings(PMEM, &text), 0);
    }

    #[test]
    fn canary_functions_of_a_trait_need_its_docs_only() {
        assert_eq!(findings(PMEM, "impl T for X { unsafe fn f() {} }"), 0);
        assert_eq!(findings(PMEM, "impl T for X { fn f() { unsafe { g() } } }"), 1);
        assert_eq!(findings(PMEM, "impl X { unsafe fn f() {} }"), 1);
        assert_eq!(findings(PMEM, "trait T { unsafe fn f(); }"), 1);
        assert_eq!(findings(PMEM, "impl T for X {}\nunsafe fn f() {}"), 1);
    }

    #[test]
    fn attributes_pointers_and_comments_need_no_reason() {
        for text in ["#[unsafe(no_mangle)]", "type F = unsafe fn(u8);", "// unsafe { }"] {
            assert_eq!(findings(PMEM, text), 0, "{text}");
        }
    }

    #[test]
    fn canary_unsafe_in_the_wrong_place_is_found() {
        let text = "// SAFETY: sound.\nfn f() { unsafe { g() } }";
        assert_eq!(findings("crates/fs/src/lib.rs", text), 1);
        assert_eq!(findings("crates/topology/src/machine.rs", text), 1);
        assert_eq!(findings("crates/topology/src/affinity.rs", text), 0);
        assert_eq!(findings("crates/fs/src/lib.rs", "#![forbid(unsafe_code)]"), 0);
    }
}

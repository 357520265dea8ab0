//! What this CPU can do, and what it is told not to.

use crate::error::{Error, Result};
use crate::kernel::{Flush, Kernels, portable};
use std::sync::OnceLock;

/// Names the instructions to use; the crate's page lists the words.
pub(crate) const VARIABLE: &str = "NEARSIDE_CPU";

/// The ways chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub(crate) kernels: &'static Kernels,
    pub(crate) flush: Flush,
}

/// The ways chosen for this process, once.
pub(crate) fn chosen() -> Result<Cpu> {
    outcome().as_ref().copied().map_err(|(value, reason)| Error::Setting {
        variable: VARIABLE,
        value: value.clone(),
        reason: reason.clone(),
    })
}

/// The loops chosen; the best, where the environment asked for what cannot be.
#[inline]
pub(crate) fn kernels() -> &'static Kernels {
    match outcome() {
        Ok(cpu) => cpu.kernels,
        Err(_) => best().kernels,
    }
}

/// What was chosen, or the setting and what is wrong with it.
type Outcome = std::result::Result<Cpu, (String, String)>;

#[inline]
fn outcome() -> &'static Outcome {
    static CHOSEN: OnceLock<Outcome> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let value = std::env::var_os(VARIABLE).unwrap_or_default();
        let value = value.to_string_lossy();
        choose(&value).map_err(|reason| (value.into_owned(), reason))
    })
}

fn best() -> Cpu {
    Cpu { kernels: available().last().copied().unwrap_or(&portable::PORTABLE), flush: flush() }
}

/// The best, but as the words in `value` say.
fn choose(value: &str) -> std::result::Result<Cpu, String> {
    let mut cpu = best();
    for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        if word == "noclwb" {
            cpu.flush = plain_flush();
            continue;
        }
        let same = |kernels: &&&'static Kernels| kernels.name.trim_end_matches("-table") == word;
        let found = available();
        cpu.kernels = found.iter().rev().find(same).ok_or_else(|| {
            let names: Vec<&str> = found.iter().map(|kernels| kernels.name).collect();
            format!("this CPU and program can do {} and noclwb", names.join(", "))
        })?;
        if word == "portable" {
            cpu.flush = plain_flush();
        }
    }
    Ok(cpu)
}

/// The loops that this CPU can run, the best last.
pub(crate) fn available() -> Vec<&'static Kernels> {
    #[allow(unused_mut)] // only x86-64 adds to it
    let mut found = vec![&portable::PORTABLE];
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use crate::kernel::x86;
        found.push(&x86::SSE2_TABLE);
        if is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
            found.push(&x86::SSE2);
            if is_x86_feature_detected!("avx2") {
                found.push(&x86::AVX2);
            }
            if is_x86_feature_detected!("avx512f") {
                found.push(&x86::AVX512);
            }
        }
    }
    found
}

/// The flush that every CPU of this architecture has.
fn plain_flush() -> Flush {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return Flush::Clflush;
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    Flush::None
}

/// The best flush that this CPU has.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn flush() -> Flush {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const LEAF: u32 = 7;
    const CLFLUSHOPT: u32 = 1 << 23;
    const CLWB: u32 = 1 << 24;
    #[allow(unused_unsafe)] // safe since Rust 1.94
    // SAFETY: every x86-64 CPU has the instruction, and the highest leaf is asked for first.
    let features = unsafe { if __cpuid(0).eax < LEAF { 0 } else { __cpuid_count(LEAF, 0).ebx } };
    if features & CLWB != 0 {
        Flush::Clwb
    } else if features & CLFLUSHOPT != 0 {
        Flush::Clflushopt
    } else {
        plain_flush()
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn flush() -> Flush {
    plain_flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_available_set_can_be_asked_for_by_name() {
        for kernels in available() {
            let word = kernels.name.trim_end_matches("-table");
            let cpu = choose(word).unwrap();
            assert_eq!(cpu.kernels.name.trim_end_matches("-table"), word);
        }
        assert_eq!(choose("").unwrap().kernels.name, best().kernels.name);
    }

    #[test]
    fn noclwb_and_portable_flush_in_the_plain_way() {
        assert_eq!(choose("noclwb").unwrap().flush, plain_flush());
        assert_eq!(choose("portable").unwrap().flush, plain_flush());
        assert_eq!(choose("portable, noclwb").unwrap().kernels.name, "portable");
    }

    #[test]
    fn an_unknown_word_is_refused_with_what_there_is() {
        assert!(choose("z80").unwrap_err().contains("portable"));
    }
}

//! Every set of loops that this CPU can run does what memcpy and the table do.

use crate::cpu::{self, Cpu};
use crate::crc::table;
use crate::kernel::Flush;
use crate::{Dirty, Domain, Mapping, crc32c, fence};
use proptest::prelude::*;

const PATTERN: u8 = 0xA5;

/// Every set, with every flush that this CPU has.
fn every_cpu() -> Vec<Cpu> {
    let best = cpu::chosen().unwrap().flush;
    let mut found = Vec::new();
    for kernels in cpu::available() {
        for flush in [Flush::None, best] {
            found.push(Cpu { kernels, flush });
        }
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    found.push(Cpu { kernels: cpu::available()[0], flush: Flush::Clflush });
    found
}

fn filled(len: usize, cpu: Cpu) -> Mapping {
    let mapping = Mapping::memory_on(len, Domain::CpuFlush, cpu).unwrap();
    fence(mapping.write(0, &vec![PATTERN; len]));
    mapping
}

/// Bytes that repeat in no power of two.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn reference_crc(data: &[u8]) -> u32 {
    // SAFETY: the slice is valid for its length.
    !unsafe { table::crc(data.as_ptr(), data.len(), !0) }
}

/// What the mapping holds after `data` were written at `offset`.
fn expected(len: usize, offset: usize, data: &[u8]) -> Vec<u8> {
    let mut image = vec![PATTERN; len];
    image[offset..offset + data.len()].copy_from_slice(data);
    image
}

/// Writes, reads and checksums `data` at `offset` in each way.
fn round_trip(mapping: &Mapping, offset: usize, data: &[u8]) {
    let (len, at) = (mapping.len() as usize, offset as u64);
    let name = mapping.kernels.name;
    let case = || format!("{name}: {} bytes at {offset}", data.len());
    let reference = reference_crc(data);
    let clean = |mapping: &Mapping| fence(mapping.write(0, &vec![PATTERN; len]));

    fence(mapping.write(at, data));
    assert!(mapping.copy_image() == expected(len, offset, data), "write, {}", case());
    clean(mapping);
    let (in_flight, crc) = mapping.write_crc(at, data);
    fence(in_flight);
    assert!(mapping.copy_image() == expected(len, offset, data), "write_crc, {}", case());
    assert_eq!(crc, reference, "write_crc, {}", case());
    clean(mapping);
    let dirty: Dirty = mapping.store(at, data);
    fence(mapping.flush(dirty, at, data.len()));
    assert!(mapping.copy_image() == expected(len, offset, data), "store, {}", case());

    let mut buffer = vec![0; data.len() + 2];
    mapping.read(at, &mut buffer[1..=data.len()]).unwrap();
    assert!(buffer[1..=data.len()] == *data, "read, {}", case());
    buffer.fill(0);
    assert_eq!(mapping.read_crc(at, &mut buffer[1..=data.len()]).unwrap(), reference, "{}", case());
    assert!(buffer[1..=data.len()] == *data, "read_crc, {}", case());
    assert_eq!((buffer[0], buffer[data.len() + 1]), (0, 0), "read_crc, {}", case());
    assert_eq!(mapping.crc(at, data.len()).unwrap(), reference, "crc, {}", case());
    let other: Vec<u8> = data.iter().rev().map(|byte| byte.wrapping_mul(5) ^ 3).collect();
    let difference = mapping.crc_difference(at, &other, 0).unwrap();
    assert_eq!(difference, reference ^ reference_crc(&other), "crc_difference, {}", case());

    fence(mapping.zero(at, data.len()));
    let zeros = vec![0; data.len()];
    assert!(mapping.copy_image() == expected(len, offset, &zeros), "zero, {}", case());
    clean(mapping);
}

#[test]
fn every_alignment_and_small_size_of_every_kernel_matches_memcpy() {
    let source = noise(512, 7);
    for cpu in every_cpu() {
        let mapping = filled(512, cpu);
        for offset in 64..=128 {
            for len in (0..=160).chain([191, 192, 193, 255, 256, 257]) {
                round_trip(&mapping, offset, &source[offset % 9..][..len]);
            }
        }
    }
}

#[test]
fn block_boundaries_of_every_kernel_match_memcpy() {
    let source = noise(9000, 11);
    for cpu in every_cpu() {
        let mapping = filled(12 << 10, cpu);
        for len in [1023, 1024, 1025, 1088, 1280, 2047, 2048, 2112, 4032, 4095, 4096, 4097, 8192] {
            for offset in [0, 8, 64, 100, 3000] {
                round_trip(&mapping, offset, &source[len % 17..][..len]);
            }
        }
    }
}

#[test]
fn megabytes_of_every_kernel_match_memcpy() {
    let source = noise(4 << 20, 13);
    for cpu in every_cpu() {
        let mapping = filled((4 << 20) + 8192, cpu);
        round_trip(&mapping, 4096, &source);
        round_trip(&mapping, 4097, &source[3..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_range_of_every_kernel_matches_memcpy(
        offset in 0usize..20_000,
        data in (0usize..70_000, any::<u64>()).prop_map(|(len, seed)| noise(len, seed)),
    ) {
        for cpu in every_cpu() {
            round_trip(&filled(96 << 10, cpu), offset, &data);
        }
    }
}

#[test]
fn the_process_wide_checksum_is_the_tables() {
    for len in (0..600).chain([4096, 100_000]) {
        let data = noise(len, 17);
        assert_eq!(crc32c(0, &data), reference_crc(&data), "{len} bytes");
    }
}

#[test]
fn ranges_to_the_last_byte_are_served_and_one_more_is_not() {
    for cpu in every_cpu() {
        let mapping = filled(8192, cpu);
        round_trip(&mapping, 8192 - 100, &noise(100, 19));
        let mut buffer = [0; 100];
        for (offset, len) in [(8092u64, 101), (8193, 0), (u64::MAX, 1), (u64::MAX - 50, 100)] {
            let mut buffer = vec![0; len];
            assert_eq!(mapping.read(offset, &mut buffer).unwrap_err().errno(), libc::EIO);
            assert!(mapping.read_crc(offset, &mut buffer).is_err());
            assert!(mapping.crc(offset, len).is_err());
        }
        assert!(mapping.crc(0, usize::MAX).is_err());
        mapping.read(8092, &mut buffer).unwrap();
        mapping.read(8192, &mut []).unwrap();
    }
}

/// Readers that run into a writer get a checksum of what they got, whatever that is.
#[test]
fn the_checksum_of_a_torn_read_is_the_torn_copys() {
    use std::sync::atomic::{AtomicBool, Ordering};
    for cpu in every_cpu() {
        let mapping = filled(4096, cpu);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = 0u8;
                while !done.load(Ordering::Relaxed) {
                    fence(mapping.write(0, &[byte; 4096]));
                    byte = byte.wrapping_add(1);
                }
            });
            let mut buffer = [0; 4096];
            for _ in 0..2000 {
                let crc = mapping.read_crc(0, &mut buffer).unwrap();
                assert_eq!(crc, reference_crc(&buffer), "{}", mapping.kernels.name);
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

/// The 8-byte words of one store are never seen half old and half new.
#[test]
fn aligned_words_are_stored_whole() {
    use std::sync::atomic::{AtomicBool, Ordering};
    for cpu in every_cpu() {
        let mapping = filled(4096, cpu);
        fence(mapping.zero(0, 4096));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = 0u8;
                while !done.load(Ordering::Relaxed) {
                    byte = byte.wrapping_add(1);
                    // Words 1 to 5 wholly, and part of words 0 and 6.
                    fence(mapping.write(3, &[byte; 50]));
                    fence(mapping.write(64, &[byte; 64]));
                }
            });
            for _ in 0..20_000 {
                for word in (8..48).chain(64..128).step_by(8) {
                    let bytes = mapping.read_u64(word / 8 * 8).unwrap().to_le_bytes();
                    assert_eq!(bytes, [bytes[0]; 8], "{} at {word}", mapping.kernels.name);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn words_are_stored_and_read_back() {
    let mapping = Mapping::memory(4096, Domain::CpuCache).unwrap();
    let dirty = mapping.store_u64(8, 0x0102_0304_0506_0708);
    fence(mapping.flush(dirty, 8, 8));
    assert_eq!(mapping.read_u64(8).unwrap(), 0x0102_0304_0506_0708);
    assert_eq!(mapping.copy_image()[8], 8);
    assert!(mapping.read_u64(4).is_err());
    assert!(mapping.read_u64(4096).is_err());
}

#[test]
#[should_panic(expected = "a store of 2 bytes at 4095 into 4096 bytes")]
fn a_write_over_the_end_panics() {
    let mapping = Mapping::memory(4096, Domain::Process).unwrap();
    let _ = mapping.write(4095, &[1, 2]);
}

#[test]
#[should_panic(expected = "not aligned")]
fn a_word_off_its_boundary_panics() {
    let mapping = Mapping::memory(4096, Domain::Process).unwrap();
    let _ = mapping.store_u64(4, 1);
}

#[test]
fn every_set_shifts_a_state_alike() {
    let state = 0x1234_5678;
    for kernels in cpu::available() {
        for bytes in [0, 1, 7, 63, 64, 65, 1000, 4032, 4095, 4096] {
            let zeros = vec![0; bytes];
            // SAFETY: the CPU has what an available set needs.
            let shifted = unsafe { (kernels.shift)(state, bytes) };
            // SAFETY: the vector is valid for its length.
            let stepped = unsafe { table::crc(zeros.as_ptr(), zeros.len(), state) };
            assert_eq!(shifted, stepped, "{} {bytes}", kernels.name);
        }
    }
}

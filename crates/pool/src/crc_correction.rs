//! Correction of flipped bits by CRC-32C.
//!
//! A checksum is linear: each flipped bit changes it by an amount that depends only on the bit's
//! distance from the end. The difference between the checksum that is found and the one that is
//! stored therefore names the bits that were flipped, if they are few.
//!
//! Two flips are found for certain in up to [`TWO_FLIPS_BITS_MAX`] bits, where any two messages
//! differ in six bits or more. In longer messages one flip is found for certain, and two flips are
//! a guess that needs another proof.

use std::collections::HashMap;
use std::sync::OnceLock;

/// Longest message in which a correction is looked for, bits: that of 16 KiB.
pub const MESSAGE_BITS_MAX: usize = 16 * 1024 * 8;
/// Bits of a message up to which two flips have no other explanation of two flips.
pub const TWO_FLIPS_BITS_MAX: usize = 5243 - 32;
/// Bits in which two copies may differ for their mixtures to be tried.
pub const DIFFERENCES_MAX: usize = 16;

/// CRC-32C, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// A bit that was flipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlippedBit {
    /// Of the message, counted from its first byte's lowest.
    Message(usize),
    /// Of the stored checksum.
    Checksum(u32),
}

/// What a flipped bit changes of a checksum.
struct Effects {
    /// By the bits from this one to the end of the message, itself included.
    by_distance: Vec<u32>,
    /// The distance that has this effect.
    distance: HashMap<u32, u32>,
}

fn effects() -> &'static Effects {
    static EFFECTS: OnceLock<Effects> = OnceLock::new();
    EFFECTS.get_or_init(|| {
        let mut by_distance = vec![1u32];
        let mut last = 1u32;
        for _ in 0..MESSAGE_BITS_MAX {
            last = (last >> 1) ^ if last & 1 == 1 { POLYNOMIAL } else { 0 };
            by_distance.push(last);
        }
        let distance = by_distance.iter().zip(0u32..).skip(1).map(|(effect, at)| (*effect, at));
        let distance = distance.collect();
        Effects { by_distance, distance }
    })
}

/// What the bit of a message of `bits` bits changes of its checksum.
fn effect(bits: usize, bit: usize) -> u32 {
    effects().by_distance.get(bits - bit).copied().unwrap_or(0)
}

/// All sets of exactly `flips` bits (1 or 2) that explain the difference `syndrome` between the
/// checksum of a message of `bits` bits and the one that is stored with it.
pub fn flips_of(bits: usize, syndrome: u32, flips: usize) -> Vec<Vec<FlippedBit>> {
    if bits > MESSAGE_BITS_MAX {
        return Vec::new();
    }
    let one = |syndrome: u32| {
        let distance = effects().distance.get(&syndrome).map(|distance| *distance as usize);
        let of_message = distance.filter(|distance| *distance <= bits);
        let of_message = of_message.map(|distance| FlippedBit::Message(bits - distance));
        let of_checksum = syndrome.is_power_of_two();
        let of_checksum = of_checksum.then(|| FlippedBit::Checksum(syndrome.trailing_zeros()));
        of_message.into_iter().chain(of_checksum)
    };
    match flips {
        1 => one(syndrome).map(|bit| vec![bit]).collect(),
        2 => {
            let mut found = Vec::new();
            for first in 0..bits {
                for second in one(syndrome ^ effect(bits, first)) {
                    // each pair once
                    if !matches!(second, FlippedBit::Message(bit) if bit <= first) {
                        found.push(vec![FlippedBit::Message(first), second]);
                    }
                }
            }
            if syndrome.count_ones() == 2 {
                let low = syndrome.trailing_zeros();
                let high = 31 - syndrome.leading_zeros();
                found.push(vec![FlippedBit::Checksum(low), FlippedBit::Checksum(high)]);
            }
            found
        }
        _ => Vec::new(),
    }
}

/// The message whose checksum is `crc`, made of two damaged copies of it: each bit in which they
/// differ is that of one or the other. None where they differ in too many bits, or no mixture fits.
pub fn mixture(first: &[u8], second: &[u8], crc: u32) -> Option<Vec<u8>> {
    let differ = first.iter().zip(second).enumerate().flat_map(|(at, (one, other))| {
        let bits = one ^ other;
        (0..8).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at * 8 + bit)
    });
    let differ: Vec<usize> = differ.take(DIFFERENCES_MAX + 1).collect();
    if differ.len() > DIFFERENCES_MAX || first.len() != second.len() {
        return None;
    }
    let bits = first.len() * 8;
    if bits > MESSAGE_BITS_MAX {
        return None;
    }
    let syndrome = pmem::crc32c(0, first) ^ crc;
    let effects: Vec<u32> = differ.iter().map(|bit| effect(bits, *bit)).collect();
    let sum = |chosen: u32| {
        let of = |(at, effect): (usize, &u32)| if chosen >> at & 1 == 1 { *effect } else { 0 };
        effects.iter().enumerate().map(of).fold(0, |sum, effect| sum ^ effect)
    };
    let mut fitting = (0..1u32 << differ.len()).filter(|chosen| sum(*chosen) == syndrome);
    let chosen = fitting.next().filter(|_| fitting.next().is_none())?;
    let mut message = first.to_vec();
    for (_, bit) in differ.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1) {
        message[bit / 8] ^= 1 << (bit % 8);
    }
    Some(message)
}

/// The message whose checksum is `crc`, if one flipped bit is all that is wrong with these bytes.
pub fn one_flip_back(bytes: &[u8], crc: u32) -> Option<Vec<u8>> {
    let syndrome = pmem::crc32c(0, bytes) ^ crc;
    let found = flips_of(bytes.len() * 8, syndrome, 1);
    let bit = found.iter().flatten().find_map(|bit| match bit {
        FlippedBit::Message(bit) => Some(*bit),
        FlippedBit::Checksum(_) => None,
    })?;
    let mut message = bytes.to_vec();
    message[bit / 8] ^= 1 << (bit % 8);
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
    }

    fn flip(bytes: &mut [u8], bit: usize) {
        bytes[bit / 8] ^= 1 << (bit % 8);
    }

    #[test]
    fn one_flip_is_found_wherever_it_is() {
        for bytes in [1, 60, 4096] {
            let whole = message(bytes);
            let crc = pmem::crc32c(0, &whole);
            for bit in (0..bytes * 8).step_by(7) {
                let mut found = whole.clone();
                flip(&mut found, bit);
                assert_eq!(one_flip_back(&found, crc).as_ref(), Some(&whole), "{bytes}, {bit}");
            }
        }
    }

    #[test]
    fn two_flips_of_a_short_message_have_one_explanation() {
        let whole = message(600);
        let bits = whole.len() * 8;
        assert!(bits <= TWO_FLIPS_BITS_MAX);
        let crc = pmem::crc32c(77, &whole);
        for (first, second) in [(0, 1), (5, 4799), (100, 2000), (4798, 4799)] {
            let mut found = whole.clone();
            flip(&mut found, first);
            flip(&mut found, second);
            let syndrome = pmem::crc32c(77, &found) ^ crc;
            let expected = vec![FlippedBit::Message(first), FlippedBit::Message(second)];
            assert_eq!(flips_of(bits, syndrome, 2), [expected]);
            assert_eq!(flips_of(bits, syndrome, 1), Vec::<Vec<FlippedBit>>::new());
        }
        let syndrome = 1 << 3 | 1 << 30;
        let both = vec![FlippedBit::Checksum(3), FlippedBit::Checksum(30)];
        assert_eq!(flips_of(bits, syndrome, 2), [both]);
    }

    #[test]
    fn copies_that_are_damaged_in_different_bits_make_a_whole_one() {
        let whole = message(4096);
        let crc = pmem::crc32c(0, &whole);
        let (mut first, mut second) = (whole.clone(), whole.clone());
        [9, 800, 30_001].iter().for_each(|bit| flip(&mut first, *bit));
        [10, 4000, 20_000, 32_767].iter().for_each(|bit| flip(&mut second, *bit));
        assert_eq!(mixture(&first, &second, crc), Some(whole.clone()));
        // the same bit in both: no mixture has the right one
        flip(&mut first, 77);
        flip(&mut second, 77);
        assert_eq!(mixture(&first, &second, crc), None);
        let garbage = vec![0xA5; 4096];
        assert_eq!(mixture(&whole[..], &garbage, crc ^ 1), None);
    }
}

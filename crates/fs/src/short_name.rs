//! A name as DRAM keeps it: most are short and need no memory of their own.

/// Bytes of a name that lies in place.
const PLACE_BYTES: usize = 22;

/// The bytes of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShortName(Place);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// The first `len` of these bytes; the others are 0.
    Here { len: u8, bytes: [u8; PLACE_BYTES] },
    /// Elsewhere, because it is longer.
    There(Box<[u8]>),
}

const _: () = assert!(size_of::<ShortName>() == 24);

impl ShortName {
    /// The name `name`.
    #[inline]
    pub fn new(name: &[u8]) -> ShortName {
        let mut bytes = [0; PLACE_BYTES];
        ShortName(match bytes.get_mut(..name.len()) {
            Some(place) => {
                place.copy_from_slice(name);
                Place::Here { len: name.len() as u8, bytes }
            }
            None => Place::There(name.into()),
        })
    }

    /// The name.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Place::Here { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Place::There(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lengths_come_back() {
        let long: Vec<u8> = (1..=255).collect();
        for len in 0..=long.len() {
            let name = ShortName::new(&long[..len]);
            assert_eq!(name.bytes(), &long[..len]);
            assert_eq!(matches!(name.0, Place::Here { .. }), len <= PLACE_BYTES);
            assert_eq!(name, name.clone());
            assert_ne!(name, ShortName::new(&long[..(len + 1) % 256]));
        }
    }
}

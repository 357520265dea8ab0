//! What messages are sealed with: a key for each direction, of one connection alone.

use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::digest::{SHA512, digest};
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes that the keys of a connection are made of.
pub const MATERIAL_BYTES: usize = 64;
/// Bytes that each side draws, so that no two connections have the same keys.
pub const NONCE_BYTES: usize = 32;

/// Which side this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It has connected.
    Program,
    /// It listens.
    Service,
}

/// The keys of one side.
#[derive(Debug)]
pub struct Keys {
    pub(crate) sends: LessSafeKey,
    pub(crate) receives: LessSafeKey,
}

impl Keys {
    /// From what both sides know and nobody else does.
    ///
    /// # Errors
    /// None that is known: a key has the length of a key.
    pub fn new(material: &[u8; MATERIAL_BYTES], side: Side) -> std::io::Result<Keys> {
        let (programs, services) = material.split_at(MATERIAL_BYTES / 2);
        let (sends, receives) = match side {
            Side::Program => (programs, services),
            Side::Service => (services, programs),
        };
        Ok(Keys { sends: key(sends)?, receives: key(receives)? })
    }

    /// From what both sides have said in the clear, the program's first: whoever has heard it has
    /// the keys, so that they show damage and nothing else.
    ///
    /// # Errors
    /// As those of [`new`](Keys::new).
    pub fn in_the_clear(nonces: [&[u8]; 2], side: Side) -> std::io::Result<Keys> {
        let said = [b"nearside fabric, in the clear", nonces[0], nonces[1]].concat();
        let mut material = [0; MATERIAL_BYTES];
        material.copy_from_slice(digest(&SHA512, &said).as_ref());
        Keys::new(&material, side)
    }
}

fn key(bytes: &[u8]) -> std::io::Result<LessSafeKey> {
    let key = UnboundKey::new(&AES_256_GCM, bytes);
    key.map(LessSafeKey::new).map_err(|_| std::io::Error::other("it is no key"))
}

/// What nobody else draws.
///
/// # Errors
/// The kernel gives no random bytes.
pub fn draw_nonce() -> std::io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    let drawn = SystemRandom::new().fill(&mut nonce);
    drawn.map_err(|_| std::io::Error::other("the kernel gives no random bytes"))?;
    Ok(nonce)
}

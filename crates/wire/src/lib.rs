//! What processes that share a pool say to each other: messages, and how they travel.
//!
//! A process attaches over a socket ([`Channel`]), which carries descriptors and tells each side of
//! the other's end. Then it calls through memory that it shares with the service ([`Calls`],
//! [`Served`]), or, over a network, through a stream of [`Frame`]s; a call is a [`Request`], its
//! answer a [`Reply`], in the encoding of postcard.
//!
//! Nothing here is stored. The two sides may be of different versions: the first words of an
//! attachment name the version ([`VERSION`]), and one that does not fit is refused with both.
#![forbid(unsafe_code)]

mod calls;
mod channel;
mod copy;
mod credentials;
mod distrust;
mod fabric;
mod failure;
mod frame;
mod greeting;
mod link;
mod message;
mod mount;
mod network;
mod read_cache;
mod socket;

pub use ::fabric::{Provider, Side};
pub use calls::{
    Calls, DATA_BYTES_MAX, Lost, MESSAGE_BYTES_MAX, SLOTS, SLOTS_KEPT, Served, Slot, Slots, Taken,
    create as create_calls,
};
pub use channel::Channel;
pub use copy::OfCopy;
pub use credentials::{BadCredentials, CREDENTIALS, Credentials, name_of};
pub use distrust::{Distrust, Peer};
pub use fabric::{Joining, NoFabric, check as check_fabric};
pub use failure::Failure;
pub use frame::{Begins, Broken, Decoder, Frame, NOTICE, PIECE_BYTES, Part, Pieces, WORDS};
pub use greeting::{FabricPlace, Greeting, Identity, SOCKET_NAME, Said, VERSION, Welcome};
pub use link::{Link, Transport, UNSENT_BYTES_MAX};
pub use message::{Call, Entry, Flags, Held, Node, Piece, Proof, Reply, Request, decode, encode};
pub use mount::{
    HEAD_BYTES as REQUEST_HEAD_BYTES, MountAnswer, MountAsk, MountServer, Notice, Outlet, Told,
};
pub use network::{PORT, prepare};
pub use read_cache::{CACHE_BYTES, CACHED_PAGES, CACHED_READ_PAGES, cached_page};
pub use socket::Place;

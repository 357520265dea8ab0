//! An endpoint of libfabric, through the shim: the one module that calls C.
//!
//! What keeps it sound: a place that was given to libfabric is not touched before it says that the
//! place is done (`lent`); and the memory stays until the endpoint is closed, or for good where it
//! cannot be closed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::endpoint::{Done, Endpoint, Failed, MESSAGE_BYTES, RECEIVES, SENDS};
use crate::neighbours::{Neighbours, are_neighbours};
use crate::provider::Provider;

const PLACES: usize = RECEIVES + SENDS;
/// Longest name of an endpoint.
const NAME_BYTES_MAX: usize = 256;
/// What libfabric says where something is to be tried again: it is the kernel's number.
const AGAIN: c_int = 11;

#[repr(C)]
struct Handle {
    _opaque: [u8; 0],
}

#[repr(C)]
#[derive(Default)]
struct RawDone {
    index: u32,
    failed: u32,
    bytes: u64,
}

// SAFETY: as src/shim.c, which is compiled with this, defines them.
unsafe extern "C" {
    fn nearside_fabric_open(
        provider: *const c_char,
        node: *const c_char,
        memory: *mut u8,
        message: usize,
        receives: usize,
        sends: usize,
        out: *mut *mut Handle,
    ) -> c_int;
    fn nearside_fabric_close(it: *mut Handle) -> c_int;
    fn nearside_fabric_provider(it: *const Handle) -> *const c_char;
    fn nearside_fabric_name(it: *mut Handle, name: *mut c_void, bytes: *mut usize) -> c_int;
    fn nearside_fabric_name_bytes(it: *const Handle) -> usize;
    fn nearside_fabric_meet(it: *mut Handle, name: *const c_void) -> c_int;
    fn nearside_fabric_receive(it: *mut Handle, index: u32, message: usize) -> isize;
    fn nearside_fabric_send(it: *mut Handle, index: u32, message: usize, bytes: usize) -> isize;
    fn nearside_fabric_poll(it: *mut Handle, done: *mut RawDone) -> c_int;
    fn nearside_fabric_wait_fd(it: *const Handle) -> c_int;
    fn nearside_fabric_may_wait(it: *mut Handle) -> c_int;
    fn nearside_fabric_words(number: c_int) -> *const c_char;
}

/// An endpoint of libfabric.
#[derive(Debug)]
pub struct Libfabric {
    handle: NonNull<Handle>,
    memory: NonNull<u8>,
    /// Places that libfabric uses.
    lent: [bool; PLACES],
    /// What it is called, and the other side, where that is in this process.
    name: Vec<u8>,
    neighbour: Option<Vec<u8>>,
}

/// An endpoint that nobody has any more, and its memory.
struct Closing(NonNull<Handle>, NonNull<u8>);

// SAFETY: see `Libfabric`.
unsafe impl Send for Closing {}

static NEIGHBOURS: Neighbours<Closing> = Neighbours::new();

impl Closing {
    fn close(self) {
        // SAFETY: the handle is open, and nobody has it any more; where it cannot be closed, the
        // memory stays. The mapping is the one that `open` made.
        unsafe {
            if nearside_fabric_close(self.0.as_ptr()) == 0 {
                let _ = munmap(self.1.as_ptr().cast(), PLACES * MESSAGE_BYTES);
            }
        }
    }
}

// SAFETY: libfabric's objects belong to no thread; one at a time uses them, who has `&mut`.
unsafe impl Send for Libfabric {}

fn words(number: isize) -> Failed {
    // SAFETY: it gives a string that is there for ever, for any number.
    let words = unsafe { CStr::from_ptr(nearside_fabric_words(number as c_int)) };
    Failed(words.to_string_lossy().into_owned())
}

impl Libfabric {
    /// An endpoint of this kind, at an address of this machine where it has addresses of IP.
    ///
    /// # Errors
    /// There is no such fabric here, or it does not do what is needed.
    pub fn open(provider: Provider, here: IpAddr) -> Result<Libfabric, Failed> {
        let node = CString::new(here.to_string()).map_err(|error| Failed(error.to_string()))?;
        let node = if provider.is_of_ip() { node.as_ptr() } else { ptr::null() };
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = PLACES * MESSAGE_BYTES;
        // SAFETY: a new mapping takes no other's place.
        let memory = unsafe { mmap_anonymous(ptr::null_mut(), bytes, prot, MapFlags::PRIVATE) };
        let memory = memory.map_err(|error| Failed(error.to_string()))?;
        let memory = NonNull::new(memory.cast()).ok_or_else(|| words(0))?;
        let (mut handle, name) = (ptr::null_mut(), provider.asked_for());
        // SAFETY: strings that end with a zero, and memory of so many places, which stays until
        // the endpoint is closed.
        let failed = unsafe {
            let to = (name.as_ptr(), node, memory.as_ptr(), &raw mut handle);
            nearside_fabric_open(to.0, to.1, to.2, MESSAGE_BYTES, RECEIVES, SENDS, to.3)
        };
        match NonNull::new(handle) {
            Some(handle) if failed == 0 => {
                let lent = [false; PLACES];
                let mut it = Libfabric { handle, memory, lent, name: Vec::new(), neighbour: None };
                it.name = it.say_name()?;
                NEIGHBOURS.add(&it.name);
                Ok(it)
            }
            _ => {
                // SAFETY: the mapping that was made above, of which nothing is used.
                let _ = unsafe { munmap(memory.as_ptr().cast(), bytes) };
                Err(words(failed as isize))
            }
        }
    }

    /// What libfabric calls what it uses.
    pub fn provider(&self) -> String {
        // SAFETY: the handle is open, and the string is there as long as it is.
        let name = unsafe { CStr::from_ptr(nearside_fabric_provider(self.handle.as_ptr())) };
        name.to_string_lossy().into_owned()
    }

    /// What the other side has to know of it.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    fn say_name(&self) -> Result<Vec<u8>, Failed> {
        let mut name = vec![0; NAME_BYTES_MAX];
        let mut bytes = name.len();
        // SAFETY: the handle is open, and there is room for so many bytes.
        let failed = unsafe {
            let room = name.as_mut_ptr().cast();
            nearside_fabric_name(self.handle.as_ptr(), room, &raw mut bytes)
        };
        if failed != 0 {
            return Err(words(failed as isize));
        }
        name.truncate(bytes);
        Ok(name)
    }

    /// The other side is the one of this name, which it has said.
    ///
    /// # Errors
    /// It is none.
    pub fn meet(&mut self, name: &[u8]) -> Result<(), Failed> {
        let none = || Failed("the other side's address is none".to_owned());
        // SAFETY: the handle is open.
        let fixed = unsafe { nearside_fabric_name_bytes(self.handle.as_ptr()) };
        let own = &self.name;
        let is_right = match fixed {
            0 => name.len() <= NAME_BYTES_MAX && CStr::from_bytes_with_nul(name).is_ok(),
            // of the same family
            fixed => name.len() == fixed && name.len() == own.len() && name[..2] == own[..2],
        };
        if !is_right {
            return Err(none());
        }
        let handle = self.handle.as_ptr();
        // SAFETY: the handle is open; the name is as long as such names are, or ends with a zero.
        let meet = || unsafe { nearside_fabric_meet(handle, name.as_ptr().cast::<c_void>()) };
        if !are_neighbours(own, name) {
            let failed = meet();
            return if failed == 0 { Ok(()) } else { Err(words(failed as isize)) };
        }
        if !NEIGHBOURS.meet(name, || meet() == 0) {
            return Err(none());
        }
        self.neighbour = Some(name.to_vec());
        Ok(())
    }

    /// What came of a place that was lent.
    fn lend(&mut self, place: usize, said: isize) -> Result<bool, Failed> {
        match said {
            0 => {
                self.lent[place] = true;
                Ok(true)
            }
            said if said == -AGAIN as isize => Ok(false),
            said => Err(words(said)),
        }
    }
}

impl Endpoint for Libfabric {
    fn receive(&mut self, place: usize) -> Result<bool, Failed> {
        assert!(place < RECEIVES && !self.lent[place], "a place of its own");
        // SAFETY: the handle is open, and nobody touches the place before it is done.
        let said =
            unsafe { nearside_fabric_receive(self.handle.as_ptr(), place as u32, MESSAGE_BYTES) };
        self.lend(place, said)
    }

    fn send(&mut self, place: usize, bytes: usize) -> Result<bool, Failed> {
        assert!(
            place < PLACES && !self.lent[place] && bytes <= MESSAGE_BYTES,
            "a place of its own"
        );
        // SAFETY: the handle is open, and nobody touches the place before it is done.
        let said = unsafe {
            nearside_fabric_send(self.handle.as_ptr(), place as u32, MESSAGE_BYTES, bytes)
        };
        self.lend(place, said)
    }

    fn poll(&mut self) -> Result<Option<Done>, Failed> {
        let mut raw = RawDone::default();
        // SAFETY: the handle is open.
        match unsafe { nearside_fabric_poll(self.handle.as_ptr(), &raw mut raw) } {
            0 => return Ok(None),
            said if said < 0 => return Err(words(said as isize)),
            _ => {}
        }
        let place = raw.index as usize;
        if !self.lent.get_mut(place).is_some_and(std::mem::take) {
            return Err(Failed("something is done that was not begun".to_owned()));
        }
        let bytes = match raw.failed {
            0 => Ok((raw.bytes as usize).min(MESSAGE_BYTES)),
            failed => Err(words(failed as isize)),
        };
        Ok(Some(Done { place, bytes }))
    }

    fn place(&mut self, place: usize) -> &mut [u8] {
        assert!(place < PLACES && !self.lent[place], "a place that the fabric does not use");
        // SAFETY: it lies in the mapping, and libfabric does not use it; `&mut self` keeps it so.
        unsafe {
            let start = self.memory.as_ptr().add(place * MESSAGE_BYTES);
            std::slice::from_raw_parts_mut(start, MESSAGE_BYTES)
        }
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the handle is open, and so is its descriptor as long as it is.
        unsafe {
            let fd = nearside_fabric_wait_fd(self.handle.as_ptr());
            (fd >= 0).then(|| BorrowedFd::borrow_raw(fd))
        }
    }

    fn may_wait(&mut self) -> bool {
        // SAFETY: the handle is open.
        self.bell().is_none() || unsafe { nearside_fabric_may_wait(self.handle.as_ptr()) != 0 }
    }
}

impl Drop for Libfabric {
    fn drop(&mut self) {
        // what is here is taken: see `Stream::settle`
        while let Ok(Some(_)) = self.poll() {}
        let closing = Closing(self.handle, self.memory);
        let names = (&self.name[..], self.neighbour.as_deref());
        NEIGHBOURS.drop(names, closing, Closing::close);
    }
}

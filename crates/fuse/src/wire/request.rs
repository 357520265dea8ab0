//! A request: who asks, about what, for what.

use super::arguments::{ExtensionHead, InHeader};
use super::operation::Operation;
use super::reader::{Malformed, Reader};
use super::{Capabilities, opcode, parse};

/// The kind of an extension that holds groups.
const EXTENSION_GROUPS: u32 = 32;
/// Extensions are counted in words of this size.
const EXTENSION_WORD_BYTES: usize = 8;

/// The head of a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead {
    /// Bytes of the whole request.
    pub len: u32,
    /// The operation's number.
    pub code: u32,
    /// The request's number, which its reply carries.
    pub unique: u64,
    /// The inode that it is about.
    pub node: u64,
    /// The caller's user.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// The caller's thread; 0 for the kernel's own.
    pub pid: u32,
}

impl RequestHead {
    /// Whether it says that the kernel forgets inodes.
    pub(crate) fn is_forget(&self) -> bool {
        matches!(self.code, opcode::FORGET | opcode::BATCH_FORGET)
    }
}

/// A request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request<'r> {
    /// Who asks, about what.
    pub head: RequestHead,
    /// What for.
    pub operation: Operation<'r>,
    /// A further group of the caller's: that of the directory in which it makes something.
    pub group: Option<u32>,
}

impl RequestHead {
    /// Reads the head of a request.
    pub fn parse(bytes: &[u8]) -> Result<RequestHead, Malformed> {
        Ok(RequestHead::from(&Reader::new(bytes).take::<InHeader>()?))
    }
}

impl From<&InHeader> for RequestHead {
    fn from(head: &InHeader) -> RequestHead {
        RequestHead {
            len: head.len,
            code: head.opcode,
            unique: head.unique,
            node: head.node,
            uid: head.uid,
            gid: head.gid,
            pid: head.pid,
        }
    }
}

impl<'r> Request<'r> {
    /// Reads a request from bytes that begin with it; `agreed` is what INIT settled.
    pub fn parse(bytes: &'r [u8], agreed: Capabilities) -> Result<Request<'r>, Malformed> {
        let len = RequestHead::parse(bytes)?.len;
        let mut reader = Reader::new(bytes.get(..len as usize).ok_or(Malformed)?);
        let head: InHeader = reader.take()?;
        let extension = usize::from(head.extension_words) * EXTENSION_WORD_BYTES;
        let group = match extension {
            0 => None,
            bytes => first_group(reader.tail(bytes)?)?,
        };
        let operation = parse::operation(head.opcode, &mut reader, agreed)?;
        Ok(Request { head: RequestHead::from(&head), operation, group })
    }
}

/// The first group that the extensions tell of.
fn first_group(mut extensions: &[u8]) -> Result<Option<u32>, Malformed> {
    while !extensions.is_empty() {
        let mut reader = Reader::new(extensions);
        let head: ExtensionHead = reader.take()?;
        let size = head.size as usize;
        if size < size_of::<ExtensionHead>() {
            return Err(Malformed);
        }
        if head.kind == EXTENSION_GROUPS {
            let count: u32 = reader.take()?;
            return if count == 0 { Ok(None) } else { Ok(Some(reader.take()?)) };
        }
        extensions = extensions.get(size.next_multiple_of(EXTENSION_WORD_BYTES)..).unwrap_or(&[]);
    }
    Ok(None)
}

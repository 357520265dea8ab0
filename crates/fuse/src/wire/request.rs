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

/// Whether a request may take so long that others should not wait for it.
pub(crate) fn is_long(head: &RequestHead) -> bool {
    matches!(
        head.code,
        opcode::FSYNC
            | opcode::FSYNCDIR
            | opcode::SYNCFS
            | opcode::FALLOCATE
            | opcode::LSEEK
            | opcode::COPY_FILE_RANGE
            | opcode::COPY_FILE_RANGE_64
    )
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
    /// All of it, as it came.
    pub bytes: &'r [u8],
    /// It was given to a server before, which may have made its change.
    pub again: bool,
    /// The slot in which it lies, and its count among those that did.
    pub turn: (usize, u64),
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
    /// The same, made for somebody else.
    pub(crate) fn asked_by(self, asking: Option<&nearside::Caller>) -> Request<'r> {
        let Some(asking) = asking else { return self };
        let head = RequestHead { uid: asking.uid(), gid: asking.gid(), ..self.head };
        Request { head, ..self }
    }

    /// Reads a request from bytes that begin with it; `agreed` is what INIT settled.
    pub fn parse(bytes: &'r [u8], agreed: Capabilities) -> Result<Request<'r>, Malformed> {
        let len = RequestHead::parse(bytes)?.len;
        let bytes = bytes.get(..len as usize).ok_or(Malformed)?;
        let mut reader = Reader::new(bytes);
        let head: InHeader = reader.take()?;
        let extension = usize::from(head.extension_words) * EXTENSION_WORD_BYTES;
        let group = match extension {
            0 => None,
            extension => first_group(reader.tail(extension)?)?,
        };
        let operation = parse::operation(head.opcode, &mut reader, agreed)?;
        let (head, again, turn) = (RequestHead::from(&head), false, (0, 0));
        Ok(Request { head, operation, group, bytes, again, turn })
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

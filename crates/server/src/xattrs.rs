//! What is asked about extended attributes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use nearside::Error;
use wire::{Reply, Request};

use crate::serve::{Answer, Call, NO_SUCH_CALL, done, path};

impl Call<'_> {
    /// Calls about extended attributes.
    pub fn of_xattrs(self, request: &Request<'_>) -> Answer {
        let pool = &self.session.pool;
        match *request {
            Request::Xattr(name, attribute) => {
                match pool.xattr(path(name), OsStr::from_bytes(attribute))? {
                    Some(value) => {
                        self.answer.extend_from_slice(&value);
                        Ok(Reply::Done)
                    }
                    None => Ok(Reply::Nothing),
                }
            }
            Request::SetXattr(name, attribute, mode) => {
                let attribute = OsStr::from_bytes(attribute);
                done(pool.set_xattr(path(name), attribute, self.data.here(), mode))
            }
            Request::RemoveXattr(name, attribute) => {
                done(pool.remove_xattr(path(name), OsStr::from_bytes(attribute)))
            }
            Request::ListXattrs(name) => {
                let names: Vec<OsString> = pool.list_xattrs(path(name))?;
                for name in names {
                    self.answer.extend_from_slice(name.as_bytes());
                    self.answer.push(0);
                }
                Ok(Reply::Done)
            }
            _ => Err(Error::Files(NO_SUCH_CALL)),
        }
    }
}

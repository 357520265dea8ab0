//! The service and those who attach to it: processes that are killed, that may not do all, that
//! lie, and the service's own end.

#![allow(missing_docs, clippy::unwrap_used)]

mod cached;
mod child;
mod claims;
mod containers;
mod deaths;
mod hand;
mod holders;
mod hostile;
mod lanes;
mod leased_regions;
mod limits;
mod load;
mod mappers;
mod mortal;
mod regions;
mod regions_there;
mod returns;
mod served;
mod strangers;
mod users;
mod waits;

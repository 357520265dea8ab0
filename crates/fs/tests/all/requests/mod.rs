//! Requests that are served again after a kill: each is done once, whatever the kill cut off, and
//! what clients held without a name is there.

mod door;
mod history;
mod kill;
mod orphans;
mod parts;
mod script;

//! What was fetched for a thread, until it lets go of it: that it finds when it tries again,
//! whatever the caches had to make room for meanwhile.

use crate::hasher::AddrMap;
use crate::page::Page;
use pool::BlockAddr;
use std::cell::RefCell;
use std::sync::Arc;

/// Pages by the number of their tier and where they lie there.
pub type Held = AddrMap<(u64, BlockAddr), Arc<Page>>;

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Holds a page of the tier that has this number, instead of one that was there before.
pub fn hold(tier: u64, addr: BlockAddr, page: Arc<Page>) {
    HELD.with_borrow_mut(|held| held.get_or_insert_default().insert((tier, addr), page));
}

/// A page that this thread holds, if its place was not given away since.
pub fn find(tier: u64, addr: BlockAddr) -> Option<Arc<Page>> {
    HELD.with_borrow(|held| {
        let page = held.as_ref()?.get(&(tier, addr))?;
        (!page.is_dead()).then(|| page.clone())
    })
}

/// Whether this thread holds nothing.
pub fn is_empty() -> bool {
    HELD.with_borrow(|held| held.as_ref().is_none_or(|held| held.is_empty()))
}

/// Takes all that this thread holds.
pub fn take() -> Held {
    HELD.take().unwrap_or_default()
}

//! What was fetched for a thread, until it lets go of it: that it finds when it tries again,
//! whatever the caches had to make room for meanwhile.

use crate::page::Page;
use pool::BlockAddr;
use std::cell::RefCell;
use std::sync::Arc;

/// The number of a tier, and a page of it.
pub type Held = Vec<(u64, BlockAddr, Arc<Page>)>;

thread_local! {
    static HELD: RefCell<Held> = const { RefCell::new(Vec::new()) };
}

/// Holds a page of the tier that has this number.
pub fn hold(tier: u64, addr: BlockAddr, page: Arc<Page>) {
    HELD.with_borrow_mut(|held| held.push((tier, addr, page)));
}

/// A page that this thread holds, if its place was not given away since.
pub fn find(tier: u64, addr: BlockAddr) -> Option<Arc<Page>> {
    HELD.with_borrow(|held| {
        let mut own =
            held.iter().filter(|(of, at, page)| *of == tier && *at == addr && !page.is_dead());
        own.next().map(|(_, _, page)| page.clone())
    })
}

/// Whether this thread holds nothing.
pub fn is_empty() -> bool {
    HELD.with_borrow(Vec::is_empty)
}

/// Takes all that this thread holds.
pub fn take() -> Held {
    HELD.take()
}

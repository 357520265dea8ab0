//! Lays one parent's worth of children out in pages: kept ones as they are, changed ones anew.

use super::{
    Child, Key, PAGE_BYTES, PagePtr, PageStore, TreeError,
    batch::Batch,
    page::{ENTRY_SPACE, Page},
    run::Run,
};

/// How full pages are made that are not appended to: room for the next few changes, so that they do
/// not split every page again.
const FILL_BYTES: usize = ENTRY_SPACE * 7 / 8;
/// A changed page with less than this is joined with a neighbour, if both then fit in
/// [`FILL_BYTES`]; the distance between the two keeps a page from splitting and joining in turn.
const JOIN_BYTES: usize = ENTRY_SPACE / 3;
/// Entries wait up to this many bytes before pages are written, and down to the lower number.
const WAITING_BYTES_MAX: usize = 8 * ENTRY_SPACE;
const WAITING_BYTES_MIN: usize = 2 * ENTRY_SPACE;

/// The pages of one level under one parent, from left to right.
pub(super) struct Packer {
    level: u8,
    pages: Vec<(Key, PagePtr)>,
    /// The last of `pages`, if it was kept and may yet be joined with what waits.
    kept: Option<Child>,
    /// Entries of changed pages, right of `pages`, not yet written.
    waiting: Run,
    appending: bool,
    changed: bool,
}

/// What a [`Packer`] has laid out.
pub(super) struct Packed {
    /// First key and pointer of each page.
    pub pages: Vec<(Key, PagePtr)>,
    /// Whether they are others than before.
    pub changed: bool,
    /// Whether the last of them grew at its end.
    pub appending: bool,
}

impl Packer {
    /// For pages of `level`.
    pub fn new(level: u8) -> Packer {
        let (pages, waiting) = (Vec::new(), Run::default());
        Packer { level, pages, kept: None, waiting, appending: false, changed: false }
    }

    /// A page is being replaced: by the entries pushed from now on, if any. If it is `appending`,
    /// entries are added where the next ones will be too, so that full pages stay behind.
    pub fn replace(&mut self, appending: bool) {
        self.changed = true;
        self.appending = appending;
    }

    /// Adds an entry.
    pub fn push<S: PageStore>(
        &mut self,
        batch: &mut Batch<'_, S>,
        key: Key,
        value: &[u8],
    ) -> Result<(), TreeError> {
        self.waiting.push(key, value);
        if self.waiting.entry_bytes() > WAITING_BYTES_MAX {
            let bytes_target = if self.appending { ENTRY_SPACE } else { FILL_BYTES };
            self.write_down_to(batch, WAITING_BYTES_MIN, bytes_target)?;
        }
        Ok(())
    }

    /// Adds a page that the batch does not change, unless it is joined with what waits.
    pub fn keep<S: PageStore>(
        &mut self,
        batch: &mut Batch<'_, S>,
        child: &Child,
        first: Key,
    ) -> Result<(), TreeError> {
        if self.appending {
            self.write_down_to(batch, ENTRY_SPACE, ENTRY_SPACE)?;
        }
        if self.wants_join() {
            let mut bytes = [0; PAGE_BYTES];
            let page = batch.read(child, &mut bytes)?;
            if self.waiting.entry_bytes() + page.entry_bytes() <= FILL_BYTES {
                batch.drop_page(child);
                self.appending = false;
                return push_all(&mut self.waiting, &page);
            }
        }
        self.write_all(batch)?;
        self.pages.push((first, child.ptr));
        self.kept = Some(*child);
        self.appending = false;
        Ok(())
    }

    /// Writes what waits.
    pub fn finish<S: PageStore>(mut self, batch: &mut Batch<'_, S>) -> Result<Packed, TreeError> {
        self.write_all(batch)?;
        Ok(Packed { pages: self.pages, changed: self.changed, appending: self.appending })
    }

    fn wants_join(&self) -> bool {
        !self.waiting.is_empty() && self.waiting.entry_bytes() < JOIN_BYTES
    }

    fn write_all<S: PageStore>(&mut self, batch: &mut Batch<'_, S>) -> Result<(), TreeError> {
        if self.wants_join() {
            self.join_left(batch)?;
        }
        while !self.waiting.is_empty() {
            let bytes = self.waiting.entry_bytes();
            let even = bytes.div_ceil(bytes.div_ceil(ENTRY_SPACE));
            self.write_one(batch, if self.appending { ENTRY_SPACE } else { even })?;
        }
        self.waiting.compact();
        Ok(())
    }

    fn join_left<S: PageStore>(&mut self, batch: &mut Batch<'_, S>) -> Result<(), TreeError> {
        let Some(left) = self.kept else { return Ok(()) };
        let mut bytes = [0; PAGE_BYTES];
        let page = batch.read(&left, &mut bytes)?;
        if self.waiting.entry_bytes() + page.entry_bytes() <= FILL_BYTES {
            let mut joined = Run::default();
            push_all(&mut joined, &page)?;
            joined.append(&self.waiting);
            self.waiting = joined;
            batch.drop_page(&left);
            self.pages.pop();
            self.kept = None;
        }
        Ok(())
    }

    fn write_down_to<S: PageStore>(
        &mut self,
        batch: &mut Batch<'_, S>,
        bytes_min: usize,
        bytes_target: usize,
    ) -> Result<(), TreeError> {
        while self.waiting.entry_bytes() > bytes_min {
            self.write_one(batch, bytes_target)?;
        }
        self.waiting.compact();
        Ok(())
    }

    fn write_one<S: PageStore>(
        &mut self,
        batch: &mut Batch<'_, S>,
        bytes_target: usize,
    ) -> Result<(), TreeError> {
        let mut page = [0; PAGE_BYTES];
        if let Some(first) = self.waiting.take_page(self.level, bytes_target, &mut page) {
            self.pages.push((first, batch.write(&page)?));
            self.kept = None;
        }
        Ok(())
    }
}

fn push_all(run: &mut Run, page: &Page<'_>) -> Result<(), TreeError> {
    for i in 0..page.count() {
        run.push(page.key(i), page.value(i)?);
    }
    Ok(())
}

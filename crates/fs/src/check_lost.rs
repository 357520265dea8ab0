//! Check past lost pages: the trees page by page and value by value, and which keys lay in pages
//! that cannot be read.
//!
//! A lost page is told once. What lay in it is missing and no contradiction: an inode has fewer
//! names, a file fewer blocks, a block no owner. Each entry whose inode lay there is told with its
//! name.

use crate::check::{Checker, Tree, inode_place};
use crate::keys;
use crate::types::Ino;
use pool::tree::{Key, Met, Root, TreeError, walk_readable};
use pool::{FoldView, Folded, Pages};
use std::collections::{BTreeMap, HashSet};

/// The longest path that a finding names, directories.
const DEPTH_MAX: usize = 4096;

/// A range of keys that lay in a lost page of a slice's tree.
#[derive(Clone, Copy, Debug)]
struct LostRange {
    slice: u8,
    from: Key,
    upper: Key,
}

/// What lay in pages that cannot be read.
#[derive(Debug, Default)]
pub struct LostRanges {
    main: Vec<LostRange>,
    space: bool,
}

impl LostRanges {
    /// Whether a page of a main tree is lost: names, blocks and references may have lain there.
    pub fn any(&self) -> bool {
        !self.main.is_empty()
    }

    /// Whether a page of a free-space tree is lost.
    pub fn any_space(&self) -> bool {
        self.space
    }

    /// Whether keys of this kind of an inode may have lain in a lost page.
    pub fn cover(&self, ino: Ino, kind: u8) -> bool {
        let (first, last) = (keys::key(ino, kind, 0), keys::key(ino, kind, u64::MAX));
        let home = keys::home(ino);
        self.main.iter().any(|lost| lost.slice == home && lost.from <= last && lost.upper > first)
    }

    /// Whether references to blocks may have lain in a lost page.
    pub fn cover_references(&self) -> bool {
        let first = Key::new(0, keys::REFERENCES, 0);
        let last = Key::new(0, keys::REFERENCES, u64::MAX);
        self.main.iter().any(|lost| lost.from <= last && lost.upper > first)
    }
}

/// The first name of each inode: its directory, and the name.
#[derive(Debug, Default)]
pub struct FirstNames(BTreeMap<Ino, (Ino, Vec<u8>)>);

impl FirstNames {
    /// Adds a name.
    pub fn add(&mut self, ino: Ino, dir: Ino, name: &[u8]) {
        self.0.entry(ino).or_insert_with(|| (dir, name.to_vec()));
    }

    /// The path of the inode that a finding's place begins with.
    pub fn path_of_place(&self, place: &str) -> Option<String> {
        let number = place.strip_prefix("inode ")?.split(',').next()?;
        self.path_of(Ino(number.parse().ok()?))
    }

    /// The path of an inode; none if it has no name that leads up to the root.
    pub fn path_of(&self, ino: Ino) -> Option<String> {
        let (mut path, mut at) = (String::new(), ino);
        for _ in 0..DEPTH_MAX {
            if at == Ino::ROOT {
                return Some(if path.is_empty() { "/".to_owned() } else { path });
            }
            let (dir, name) = self.0.get(&at)?;
            path = format!("/{}{path}", String::from_utf8_lossy(name));
            at = *dir;
        }
        None
    }
}

impl Checker<'_> {
    /// What the trees hold, and what their values say.
    pub fn trees(&mut self, view: &FoldView<'_>, folded: &Folded) {
        let pages = self.pages(view, folded);
        for addr in pages {
            self.state.owners.insert(addr, Ino(0));
        }
        for (slice, root) in folded.trees.iter().enumerate() {
            let tree: Tree<'_> = (view, root);
            walk_readable(view, root, Key::MIN, &mut |met| {
                if let Met::Entry(key, value) = met {
                    self.value(slice as u8, &key, value, tree);
                }
                true
            });
        }
        self.verify_below();
    }

    /// The pages of the trees; those that cannot be read are told.
    fn pages(&mut self, view: &FoldView<'_>, folded: &Folded) -> HashSet<u64> {
        let mut pages = HashSet::new();
        for (is_main, roots) in [(true, &folded.trees), (false, &folded.spaces)] {
            for (slice, root) in roots.iter().enumerate() {
                let kind = if is_main { "tree" } else { "free-space tree" };
                self.pages_of(view, root, (slice, is_main, kind), &mut pages);
            }
        }
        pages
    }

    fn pages_of(
        &mut self,
        view: &FoldView<'_>,
        root: &Root,
        (slice, is_main, kind): (usize, bool, &str),
        pages: &mut HashSet<u64>,
    ) {
        let (mut twice, mut copies, mut lost, mut entries) = (None, Vec::new(), Vec::new(), 0);
        walk_readable(view, root, Key::MIN, &mut |met| {
            match met {
                Met::Page(ptr, _) => {
                    twice = ptr.blocks().find(|addr| !pages.insert(addr.bits())).or(twice);
                    copies.extend(self.core.pool.second_copy(ptr).and_then(|copy| copy.err()));
                }
                Met::Entry(..) => entries += 1,
                Met::Lost(page) => {
                    let (from, upper) = (page.from.unwrap_or(Key::MIN), page.upper);
                    let upper = upper.unwrap_or(Key::MAX);
                    lost.push((LostRange { slice: slice as u8, from, upper }, page.why));
                }
            }
            true
        });
        let place = format!("slice {slice}, {kind}");
        for error in copies {
            self.report.add(&*place, format!("the second copy of a page: {error}"));
        }
        if lost.is_empty() && entries != root.entries {
            let what = "the root's count of entries is wrong";
            let error = TreeError::Damaged { addr: root.page.addr, what };
            self.report.add(&*place, error.to_string());
        }
        for (range, why) in lost {
            self.report.add(&*place, why.to_string());
            match is_main {
                true => self.state.lost.main.push(range),
                false => self.state.lost.space = true,
            }
        }
        if let Some(addr) = twice {
            self.report.add(addr.place(), "two pages of the trees lie on one block");
        }
    }

    /// An entry whose inode is not there, or has no attributes: what is wrong with it, if the
    /// inode's own keys may have lain in a lost page.
    pub fn lost_inode(&self, ino: Ino) -> Option<&'static str> {
        let lost = self.state.lost.cover(ino, keys::INODE);
        lost.then_some("its inode lay in a page of the tree that cannot be read")
    }

    /// Tells of an inode that has data but no attributes, unless its names tell it.
    pub fn no_attributes(&mut self, ino: Ino, names: u32) {
        match self.lost_inode(ino) {
            None => self.report.add(inode_place(ino), "has data but no attributes"),
            Some(_) if names > 0 => {}
            Some(_) => {
                let what = "its attributes lay in a page of the tree that cannot be read";
                self.report.add(inode_place(ino), what);
            }
        }
    }

    /// Tells which pages of the last checkpoint cannot be read, where its log could not be applied.
    pub fn only_pages(&mut self) {
        let roots = self.core.pool.roots();
        let folded = Folded { trees: roots.trees.clone(), spaces: roots.spaces.clone() };
        let pages = Pages::in_memory();
        self.pages(&FoldView::new(&self.core.pool, &pages), &folded);
    }
}

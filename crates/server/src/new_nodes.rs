//! Calls that give an inode a name: new directories, symbolic links, and hard links.

use std::path::Path;

use nearside::{Pool, Result};
use wire::Node;

use crate::serve::path;

/// Makes what `node` says, and names it `name`.
pub fn make(pool: &Pool, name: &Path, node: Node<'_>) -> Result<()> {
    match node {
        Node::Directory => pool.create_dir(name),
        Node::DirectoryWithMode(mode) => pool.create_dir_with_mode(name, mode),
        Node::Directories => pool.create_dir_all(name),
        Node::Symlink(target) => pool.symlink(path(target), name),
        Node::Link(original) => pool.hard_link(path(original), name),
    }
}

//! The model's changes and its view of a directory, through the library.

use crate::model::{Model, Op};
use nearside::{OpenFlags, Pool, Result};

/// Makes a change below `root`.
pub fn make(op: &Op, pool: &Pool, root: &str) -> Result<()> {
    let at = |path: &str| format!("{root}/{path}");
    let open = |path: &str| pool.open_file(at(path), &OpenFlags::new().write(true));
    match *op {
        Op::Create(path) => {
            let flags = OpenFlags::new().write(true).create_new(true);
            pool.open_file(at(path), &flags).map(|_| ())
        }
        Op::Write(path, offset, len, byte) => open(path)?.write_all_at(&vec![byte; len], offset),
        Op::Append(path, len, byte) => open(path)?.append(&vec![byte; len]).map(|_| ()),
        Op::Resize(path, bytes) => open(path)?.set_len(bytes),
        Op::Rename(from, to) => pool.rename(at(from), at(to)),
        Op::Unlink(path) => pool.remove_file(at(path)),
        Op::MakeDir(dir) => pool.create_dir(at(dir)),
        Op::RemoveDir(dir) => pool.remove_dir(at(dir)),
    }
}

/// What the pool has below `root`.
pub fn read(pool: &Pool, root: &str) -> Result<Model> {
    let mut model = Model::default();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for entry in pool.read_dir(format!("{root}/{dir}"))? {
            let entry = entry?;
            let path = format!("{dir}{}", entry.file_name().display());
            let is_dir = entry.kind() == nearside::FileKind::Directory;
            let content = if is_dir { None } else { Some(pool.read(format!("{root}/{path}"))?) };
            if is_dir {
                dirs.push(format!("{path}/"));
            }
            model.0.insert(path, content);
        }
    }
    Ok(model)
}

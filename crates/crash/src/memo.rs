//! Images that recovery cannot tell apart.
//!
//! What opening, checking and using an image does depends on the lines that it reads, and on
//! nothing else. So an image that agrees with an earlier one in every line that was read there has
//! the same outcome: of all the images of a data block whose record is lost, one is opened. A line
//! that was overwritten whole before it was read counts as not read.
//!
//! A tree of questions: which line is read next, and what does it hold? A path that ends is an
//! image that was looked at.

use crate::model::LineId;
use std::collections::{BTreeSet, HashMap};

/// The images that were looked at, by what was read of them.
#[derive(Debug, Default)]
pub struct Memo {
    nodes: Vec<Node>,
}

#[derive(Debug)]
enum Node {
    /// Nothing more was read.
    End,
    /// A line, and where to go on by the hash of what it holds.
    Line(LineId, HashMap<u64, usize>),
}

impl Memo {
    /// The lines that were read of an earlier image with which this one agrees in all of them.
    pub fn find(&self, content: &dyn Fn(LineId) -> u64) -> Option<Vec<LineId>> {
        let mut path = Vec::new();
        let mut at = 0;
        loop {
            match self.nodes.get(at)? {
                Node::End => return Some(path),
                Node::Line(line, next) => {
                    at = *next.get(&content(*line))?;
                    path.push(*line);
                }
            }
        }
    }

    /// Adds an image of which these lines were read.
    pub fn add(&mut self, content: &dyn Fn(LineId) -> u64, mut read: Vec<LineId>) {
        read.reverse();
        let mut at = 0;
        loop {
            if at == self.nodes.len() {
                // where no earlier image went: the rest of what was read, in order
                let line = read.pop();
                self.nodes.push(line.map_or(Node::End, |line| Node::Line(line, HashMap::new())));
            }
            let new = self.nodes.len();
            let Some(Node::Line(line, next)) = self.nodes.get_mut(at) else { return };
            // it may be one that was not read this time: then the image is told more closely
            read.retain(|other| other != line);
            at = *next.entry(content(*line)).or_insert(new);
        }
    }

    /// All lines that were read of any image.
    pub fn lines(&self) -> BTreeSet<LineId> {
        let line = |node: &Node| match node {
            Node::Line(line, _) => Some(*line),
            Node::End => None,
        };
        self.nodes.iter().filter_map(line).collect()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of lines 0 to 3, each of which holds a number.
    fn image(lines: [u64; 4]) -> impl Fn(LineId) -> u64 {
        move |line| lines[line.1 as usize]
    }

    fn read(lines: &[u64]) -> Vec<LineId> {
        lines.iter().map(|line| (0, *line)).collect()
    }

    #[test]
    fn images_that_agree_in_what_was_read_are_one() {
        let mut memo = Memo::default();
        assert_eq!(memo.find(&image([0; 4])), None);
        memo.add(&image([1, 2, 3, 4]), read(&[0, 2]));
        assert_eq!(memo.find(&image([1, 9, 3, 9])), Some(read(&[0, 2])));
        assert_eq!(memo.find(&image([1, 2, 9, 4])), None);
        memo.add(&image([1, 2, 9, 4]), read(&[0, 2, 1]));
        assert_eq!(memo.find(&image([1, 2, 9, 9])), Some(read(&[0, 2, 1])));
        assert_eq!(memo.find(&image([1, 3, 9, 9])), None);
        assert_eq!(memo.find(&image([2, 2, 3, 4])), None);
        memo.clear();
        assert_eq!(memo.find(&image([1, 2, 3, 4])), None);
    }

    #[test]
    fn an_order_that_was_another_takes_for_equal_no_more_than_was_read() {
        let mut memo = Memo::default();
        memo.add(&image([1, 2, 3, 4]), read(&[0, 1]));
        memo.add(&image([5, 2, 3, 4]), read(&[1, 2]));
        assert_eq!(memo.find(&image([5, 2, 3, 9])), Some(read(&[0, 1, 2])));
        assert_eq!(memo.find(&image([6, 2, 3, 4])), None);
        assert_eq!(memo.find(&image([5, 2, 4, 4])), None);
        memo.add(&image([1, 2, 7, 4]), read(&[2, 3]));
        assert_eq!(memo.find(&image([1, 2, 8, 8])), Some(read(&[0, 1])));
    }

    #[test]
    fn an_image_of_which_nothing_was_read_is_every_image() {
        let mut memo = Memo::default();
        memo.add(&image([1; 4]), Vec::new());
        assert_eq!(memo.find(&image([2; 4])), Some(Vec::new()));
    }
}

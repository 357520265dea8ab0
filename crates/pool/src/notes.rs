//! What is noticed about a pool, for `info`.

use crate::pool::Pool;

impl Pool {
    /// Adds a line to what `info` says was noticed, unless it is there.
    pub fn note(&self, note: String) {
        let mut notes = self.notes.lock();
        if !notes.contains(&note) {
            tracing::warn!("{note}");
            notes.push(note);
        }
    }

    /// Takes back what is no longer so.
    pub(crate) fn forget_notes(&self, is_over: &dyn Fn(&str) -> bool) {
        self.notes.lock().retain(|note| !is_over(note));
    }
}

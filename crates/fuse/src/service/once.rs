//! Requests that are served again, because their server died before it had answered.

use nearside::files::RequestId;

use super::Service;

impl Service {
    pub(super) fn id(&self, unique: u64) -> RequestId {
        RequestId { client: self.client, sequence: unique }
    }

    /// Whether an earlier server made the change that request `unique` asks for.
    pub(crate) fn was_done(&self, unique: u64) -> bool {
        self.fs.was_done(self.id(unique))
    }

    /// Serves request `unique`: the last change within is durable together with its id.
    pub(crate) fn within<T>(&self, unique: u64, serve: impl FnOnce() -> T) -> T {
        self.fs.with_request(self.id(unique), serve)
    }

    /// Request `unique` will not be served again.
    pub(crate) fn acknowledge(&self, unique: u64) {
        self.fs.acknowledge(self.id(unique));
    }
}

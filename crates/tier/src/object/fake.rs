//! A store for tests that counts, and does what stores of the network do at times.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use std::time::Duration;

/// What becomes of the next put.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Next {
    /// It is done.
    #[default]
    Done,
    /// No answer comes, and it is done only when [`Fake::deliver`] says so.
    Late,
    /// No answer comes, though it is done.
    Unanswered,
    /// It is done, after a while.
    Slow(Duration),
    /// From now on nothing is done at all.
    Gone,
}

/// A put that is under way.
type Letter = (Path, PutPayload, PutOptions);

/// The store.
#[derive(Debug, Default)]
pub struct Fake {
    pub inner: InMemory,
    pub next: Mutex<Next>,
    /// Reads with what they read of, and puts.
    pub gets: Mutex<Vec<(String, bool)>>,
    pub puts: Mutex<Vec<String>>,
    /// What somebody else puts before the next put arrives.
    pub before: Mutex<Option<(Path, Vec<u8>)>>,
    late: Mutex<Vec<Letter>>,
}

impl Fake {
    fn take_next(&self) -> Next {
        let mut next = self.next.lock();
        match *next {
            Next::Gone => Next::Gone,
            _ => std::mem::take(&mut next),
        }
    }

    /// What was late arrives.
    pub async fn deliver(&self) -> Vec<Result<PutResult>> {
        let mut answers = Vec::new();
        let late = std::mem::take(&mut *self.late.lock());
        for (path, payload, options) in late {
            answers.push(self.inner.put_opts(&path, payload, options).await);
        }
        answers
    }
}

impl std::fmt::Display for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a fake")
    }
}

fn no_answer() -> Error {
    Error::Generic { store: "fake", source: "no answer".into() }
}

#[async_trait]
impl ObjectStore for Fake {
    async fn put_opts(&self, at: &Path, what: PutPayload, how: PutOptions) -> Result<PutResult> {
        self.puts.lock().push(at.to_string());
        let before = self.before.lock().take();
        if let Some((path, bytes)) = before {
            self.inner.put_opts(&path, bytes.into(), PutOptions::default()).await?;
        }
        match self.take_next() {
            Next::Done => return self.inner.put_opts(at, what, how).await,
            Next::Slow(time) => {
                tokio::time::sleep(time).await;
                return self.inner.put_opts(at, what, how).await;
            }
            Next::Late => self.late.lock().push((at.clone(), what, how)),
            Next::Unanswered => drop(self.inner.put_opts(at, what, how).await?),
            Next::Gone => {}
        }
        Err(no_answer())
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        if *self.next.lock() == Next::Gone {
            return Err(no_answer());
        }
        self.gets.lock().push((at.to_string(), options.head));
        self.inner.get_opts(at, options).await
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(no_answer())
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(no_answer())
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(no_answer())
    }
}

//! The async runtime of every program, with clock, shutdown and file watching.

pub mod block_in_place;
pub mod clock;
pub mod crypto;
pub(crate) mod file_watch;
pub mod shutdown;

use tokio::runtime::{Builder, Runtime};

/// Path of a file that marks released images. It is a file because the environment of a container
/// can be set freely, and the root file system of the container is read-only.
pub(crate) const RELEASE: &str = "/usr/share/hayward/release";

/// Number of tasks that a busy thread runs before it polls for I/O. With the default of 61, a flood
/// of requests from one caller delays others by milliseconds (G13).
const EVENT_INTERVAL: u32 = 8;

/// Creates the runtime.
///
/// # Errors
/// If the system creates no thread.
pub fn runtime() -> std::io::Result<Runtime> {
    builder().build()
}

fn builder() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().event_interval(EVENT_INTERVAL);
    builder
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    use std::task::Poll;

    use tokio::io::AsyncReadExt as _;

    use super::builder;

    const CALLS: usize = 200;

    /// A busy thread polls for I/O after a few tasks (G13).
    #[test]
    fn io_is_polled_between_a_few_tasks() {
        let one = builder().worker_threads(1).build().unwrap();
        let (done, over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        for _ in 0..3 {
            let (done, over) = (Arc::clone(&done), Arc::clone(&over));
            // This task does not use `yield_now`, because that polls for I/O first.
            one.spawn(std::future::poll_fn(move |cx| {
                done.fetch_add(1, SeqCst);
                cx.waker().wake_by_ref();
                if over.load(SeqCst) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            }));
        }
        let (send_call, calls) = std::sync::mpsc::channel::<()>();
        let called_at = Arc::new(AtomicU64::new(0));
        let (at, done_so_far) = (Arc::clone(&called_at), Arc::clone(&done));
        let mut waited: Vec<u64> = one.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut caller = std::net::TcpStream::connect(address).unwrap();
            let (mut called, _) = listener.accept().await.unwrap();
            std::thread::spawn(move || {
                while calls.recv().is_ok() {
                    caller.write_all(b"x").unwrap();
                    at.store(done.load(SeqCst), SeqCst);
                }
            });
            let receive = async move {
                let mut waited = Vec::new();
                for _ in 0..CALLS {
                    send_call.send(()).unwrap();
                    called.read_u8().await.unwrap();
                    let before = called_at.load(SeqCst);
                    waited.push(done_so_far.load(SeqCst).saturating_sub(before));
                }
                waited
            };
            tokio::spawn(receive).await.unwrap()
        });
        over.store(true, SeqCst);
        // Some calls are late because the node runs other programs too.
        waited.sort_unstable();
        let usual = waited[CALLS / 2];
        assert!(usual <= 15, "{usual} tasks were done before it");
    }
}

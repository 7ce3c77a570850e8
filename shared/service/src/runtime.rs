//! The async runtime of every program, with clock, shutdown and file watching.

pub mod block_in_place;
pub mod clock;
pub(crate) mod file_watch;
pub mod shutdown;
pub mod tls_provider;

use tokio::runtime::{Builder, Runtime};

/// Path of a file that marks released images. It is a file because the environment of a container
/// can be set freely, and the root file system of the container is read-only.
pub(crate) const RELEASE_MARKER: &str = "/usr/share/hayward/release";

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

    const MESSAGES: usize = 200;

    /// Three tasks use the only thread without a pause. The test counts the polls of these tasks
    /// between the sending and the receipt of a message. A busy thread must often poll for I/O
    /// (G13).
    #[test]
    fn io_is_polled_between_a_few_tasks() {
        let runtime = builder().worker_threads(1).build().unwrap();
        let (poll_count, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        for _ in 0..3 {
            let (poll_count, stop) = (Arc::clone(&poll_count), Arc::clone(&stop));
            // This task does not use `yield_now`, because that polls for I/O first.
            runtime.spawn(std::future::poll_fn(move |cx| {
                poll_count.fetch_add(1, SeqCst);
                cx.waker().wake_by_ref();
                if stop.load(SeqCst) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            }));
        }
        let (send_message, messages) = std::sync::mpsc::channel::<()>();
        let sent_at = Arc::new(AtomicU64::new(0));
        let (recorded_at, polls_until_now) = (Arc::clone(&sent_at), Arc::clone(&poll_count));
        let mut delays: Vec<u64> = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut client = std::net::TcpStream::connect(address).unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            std::thread::spawn(move || {
                while messages.recv().is_ok() {
                    client.write_all(b"x").unwrap();
                    recorded_at.store(poll_count.load(SeqCst), SeqCst);
                }
            });
            let receive = async move {
                let mut delays = Vec::new();
                for _ in 0..MESSAGES {
                    send_message.send(()).unwrap();
                    server.read_u8().await.unwrap();
                    let before = sent_at.load(SeqCst);
                    delays.push(polls_until_now.load(SeqCst).saturating_sub(before));
                }
                delays
            };
            tokio::spawn(receive).await.unwrap()
        });
        stop.store(true, SeqCst);
        // Some messages are late because the node runs other programs too.
        delays.sort_unstable();
        let median = delays[MESSAGES / 2];
        assert!(median <= 15, "{median} polls before a message was received");
    }
}

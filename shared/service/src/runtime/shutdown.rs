//! Shutdown signal: every holder of a [`Shutdown`] can begin it or wait for it.

use tokio_util::sync::CancellationToken;

/// Shutdown signal. Clones share the signal. A shutdown also begins the shutdowns of its children
/// (see [`Shutdown::child`]). A child does not begin the shutdown of its parent.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a shutdown that SIGINT or SIGTERM begins.
    ///
    /// # Errors
    /// If the process may not install signal handlers.
    pub fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        );
        let shutdown = Self::new();
        let for_task = shutdown.clone();
        tokio::spawn(async move {
            let name = tokio::select! {
                _ = interrupt.recv() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
                () = for_task.wait() => return,
            };
            tracing::info!(signal = name, "shutting down");
            for_task.begin();
        });
        Ok(shutdown)
    }

    pub fn begin(&self) {
        self.0.cancel();
    }

    pub fn has_begun(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the shutdown has begun. Returns at once if it already has.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }

    /// Returns a shutdown that begins with this one, and can begin alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(self.0.child_token())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shutdown_reaches_children_and_not_the_parent() {
        let parent = Shutdown::new();
        let child = parent.child();
        child.begin();
        assert!(child.has_begun() && !parent.has_begun());
        let other = parent.child();
        parent.clone().begin();
        other.wait().await;
    }
}

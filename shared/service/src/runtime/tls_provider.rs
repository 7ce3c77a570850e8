//! The TLS implementation of the process.

use std::sync::Once;

/// Selects the TLS implementation of this process. Further calls have no effect.
pub fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // This fails only if an implementation is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

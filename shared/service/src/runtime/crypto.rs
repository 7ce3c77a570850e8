//! The TLS implementation of the process.

use std::sync::Once;

/// Selects the TLS implementation of this process. More calls have no effect.
pub fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Fails only when one is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

//! A real browser for tests of pages: Debian's Chromium without a window, driven by the DevTools
//! protocol.
//!
//! A [`Browser`] is one process with a temporary profile; it ends with the test, however that ends.
//! It resolves no name and reaches this machine alone, so a page that asks another host for
//! something neither gets it nor hides it. Each [`Page`] is a window with cookies and cache of its
//! own, and remembers every request it made and every complaint of its console.
//!
//! Failures here panic: a test without its browser has nothing to say.

mod launch;
mod page;
mod program;

pub use launch::Browser;
pub use page::{Page, Request};

//! A real browser for tests of pages: Chromium from Debian without a window, controlled with the
//! DevTools protocol.
//!
//! A [`Browser`] is one process with a temporary profile. It ends with the test, however that ends.
//! It resolves no names and reaches only this machine, so a request of a page to another host fails
//! visibly. Each [`Page`] is a window with its own cookies and cache. It records every request and
//! every error of its console.
//!
//! Failures panic, because a test without its browser has no result.

mod find_chromium;
mod launch;
mod page;

pub use launch::Browser;
pub use page::{Page, Request};

//! A real browser for tests of pages: Chromium from Debian without a window, controlled with the
//! DevTools protocol.
//!
//! A [`Browser`] is one process with a temporary profile. The browser ends with the test process,
//! even if the test fails. The browser reaches only this machine, so a request of a page to another
//! host fails visibly. Each [`Page`] is a window with its own cookies and cache, and records all
//! requests and console errors of the window.
//!
//! Failures panic, because a test without its browser has no result.

mod find_chromium;
mod launch;
mod page;

pub use launch::Browser;
pub use page::{Page, Request};

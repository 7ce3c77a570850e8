//! Starts and ends a browser.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chromiumoxide::browser::{Browser as Driver, BrowserConfig};
use chromiumoxide::cdp::browser_protocol::target::{
    CreateBrowserContextParams, CreateTargetParams,
};
use futures_util::StreamExt as _;
use tokio::task::JoinHandle;

use crate::find_chromium::find_chromium;
use crate::page::Page;

/// Time limit of a start and of each command on a busy machine. A start normally takes a quarter of
/// a second.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Script that starts the browser. With `setpriv`, the browser ends together with the test process,
/// even if that is killed.
const LAUNCHER: &str = r#"#!/bin/sh
if command -v setpriv >/dev/null; then
  exec setpriv --pdeathsig KILL -- "$HAYWARD_TEST_CHROMIUM" "$@"
fi
exec "$HAYWARD_TEST_CHROMIUM" "$@"
"#;

/// A browser for one test.
pub struct Browser {
    driver: Driver,
    /// Task that passes commands to the browser and receives its events.
    event_task: JoinHandle<()>,
    /// Folder with the profile. It is deleted on drop.
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser. Prints a note and returns `None` if no browser is installed.
    ///
    /// # Panics
    /// If the browser does not start, or if one is required and none is installed.
    pub async fn start() -> Option<Self> {
        let program = find_chromium()?;
        let folder = tempfile::tempdir().expect("a folder");
        let config = browser_config(&program, folder.path());
        let (driver, mut handler) = Driver::launch(config).await.expect("the browser starts");
        let event_task = tokio::spawn(async move { while handler.next().await.is_some() {} });
        Some(Self {
            driver,
            event_task,
            _folder: folder,
        })
    }

    /// Opens an empty window with its own cookies and cache.
    pub async fn open_page(&self) -> Page {
        let context = CreateBrowserContextParams::default();
        let context = self.driver.create_browser_context(context).await;
        let context = context.expect("a context of its own");
        let target = CreateTargetParams::builder()
            .url("about:blank")
            .browser_context_id(context)
            .build()
            .expect("an address");
        let page = self.driver.new_page(target).await.expect("a window");
        Page::from_driver(page).await
    }

    /// Asks the browser to end, and waits until it has ended.
    pub async fn close(mut self) {
        if self.driver.close().await.is_err() {
            let _ = self.driver.kill().await;
        }
        let _ = self.driver.wait().await;
        self.event_task.abort();
    }
}

fn browser_config(program: &Path, folder: &Path) -> BrowserConfig {
    let mut config = BrowserConfig::builder()
        .chrome_executable(write_launcher(folder))
        .env("HAYWARD_TEST_CHROMIUM", program.to_string_lossy())
        .user_data_dir(folder.join("profile"))
        .new_headless_mode()
        .port(0)
        .launch_timeout(TIMEOUT)
        .request_timeout(TIMEOUT)
        .window_size(1_400, 1_000)
        .viewport(None)
        .arg(("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"));
    if nix::unistd::geteuid().is_root() {
        config = config.no_sandbox();
    }
    config.build().expect("settings of a browser")
}

fn write_launcher(folder: &Path) -> PathBuf {
    let path = folder.join("launch");
    std::fs::write(&path, LAUNCHER).expect("a script");
    let executable = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&path, executable).expect("a script that runs");
    path
}

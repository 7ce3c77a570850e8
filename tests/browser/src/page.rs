//! One window and its recorded activity.

use std::path::Path;
use std::sync::Arc;

use chromiumoxide::cdp::browser_protocol::log::{EventEntryAdded, LogEntryLevel};
use chromiumoxide::cdp::browser_protocol::network::EventRequestWillBeSent;
use chromiumoxide::cdp::js_protocol::runtime::{
    ConsoleApiCalledType, EventConsoleApiCalled, EventExceptionThrown, RemoteObject,
};
use chromiumoxide::listeners::EventStream;
use chromiumoxide::page::ScreenshotParams;
use futures_util::{Stream, StreamExt as _};
use hayward_testkit::until;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

/// One request of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub url: String,
}

/// Activity of a page since it was opened.
#[derive(Debug, Default)]
struct Record {
    requests: Vec<Request>,
    /// Errors of the console, of scripts and of the network, and reports of a content policy.
    errors: Vec<String>,
}

#[derive(Clone)]
pub struct Page {
    driver: chromiumoxide::Page,
    record: Arc<Mutex<Record>>,
}

impl Page {
    pub(crate) async fn watched(driver: chromiumoxide::Page) -> Self {
        let page = Self {
            driver,
            record: Arc::default(),
        };
        page.driver.enable_log().await.expect("its log");
        page.note(
            page.listen().await,
            |event: &EventRequestWillBeSent, record| {
                let request = &event.request;
                record.requests.push(Request {
                    method: request.method.clone(),
                    url: request.url.clone(),
                });
            },
        );
        page.note(page.listen().await, |event: &EventEntryAdded, record| {
            if event.entry.level == LogEntryLevel::Error {
                let place = event.entry.url.as_deref().unwrap_or_default();
                record
                    .errors
                    .push(format!("{} ({place})", event.entry.text));
            }
        });
        page.note(
            page.listen().await,
            |event: &EventConsoleApiCalled, record| {
                let wrong = [ConsoleApiCalledType::Error, ConsoleApiCalledType::Assert];
                if wrong.contains(&event.r#type) {
                    let texts: Vec<String> = event.args.iter().map(text).collect();
                    record.errors.push(texts.join(" "));
                }
            },
        );
        page.note(
            page.listen().await,
            |event: &EventExceptionThrown, record| {
                let details = &event.exception_details;
                let thrown = details.exception.as_ref().map(text).unwrap_or_default();
                record.errors.push(format!("{} {thrown}", details.text));
            },
        );
        page
    }

    async fn listen<T: chromiumoxide::cdp::IntoEventKind>(&self) -> EventStream<T> {
        self.driver.event_listener().await.expect("its events")
    }

    fn note<T: Send + Sync + 'static>(
        &self,
        mut events: impl Stream<Item = Arc<T>> + Unpin + Send + 'static,
        keep: impl Fn(&T, &mut Record) + Send + 'static,
    ) {
        let record = Arc::clone(&self.record);
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                keep(&event, &mut record.lock());
            }
        });
    }

    /// Opens an address and waits until its document is loaded.
    pub async fn open(&self, url: &str) {
        let gone = self.driver.goto(url).await;
        gone.unwrap_or_else(|error| panic!("{url} does not open: {error}"));
    }

    /// Returns the value of a JavaScript expression, which may be a promise.
    pub async fn value<T: DeserializeOwned>(&self, expression: &str) -> T {
        let found = self.driver.evaluate(expression).await;
        let found = found.unwrap_or_else(|error| panic!("{expression}: {error}"));
        found.into_value().expect("a value of this type")
    }

    /// Polls until the expression is true.
    pub async fn until(&self, what: &str, expression: &str) {
        until(what, async || {
            self.value::<bool>(expression).await.then_some(())
        })
        .await;
    }

    /// Returns all requests in order, except for data URLs.
    pub fn requests(&self) -> Vec<Request> {
        let all = self.record.lock().requests.clone();
        let inside = |it: &Request| it.url.starts_with("data:") || it.url.starts_with("about:");
        all.into_iter().filter(|it| !inside(it)).collect()
    }

    /// Returns all errors of the console, in order.
    pub fn errors(&self) -> Vec<String> {
        self.record.lock().errors.clone()
    }

    /// Saves the visible part of the page as PNG.
    pub async fn picture(&self, path: &Path) {
        let whole = ScreenshotParams::builder().build();
        let saved = self.driver.save_screenshot(whole, path).await;
        saved.expect("a picture");
    }
}

/// Formats a value of a script as the console shows it.
fn text(value: &RemoteObject) -> String {
    let plain = value.value.as_ref().map(ToString::to_string);
    value
        .description
        .clone()
        .or(plain)
        .unwrap_or_else(|| "undefined".to_owned())
}

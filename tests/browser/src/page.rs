//! One window of the browser, with its recorded requests and errors.

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
struct Activity {
    requests: Vec<Request>,
    /// Errors of the console, of scripts and of the network, and reports of a content policy.
    errors: Vec<String>,
}

#[derive(Clone)]
pub struct Page {
    driver: chromiumoxide::Page,
    activity: Arc<Mutex<Activity>>,
}

impl Page {
    pub(crate) async fn from_driver(driver: chromiumoxide::Page) -> Self {
        let page = Self {
            driver,
            activity: Arc::default(),
        };
        page.driver.enable_log().await.expect("its log");
        page.record_events(
            page.listen().await,
            |event: &EventRequestWillBeSent, activity| {
                let request = &event.request;
                activity.requests.push(Request {
                    method: request.method.clone(),
                    url: request.url.clone(),
                });
            },
        );
        page.record_events(page.listen().await, |event: &EventEntryAdded, activity| {
            if event.entry.level == LogEntryLevel::Error {
                let url = event.entry.url.as_deref().unwrap_or_default();
                activity
                    .errors
                    .push(format!("{} ({url})", event.entry.text));
            }
        });
        page.record_events(
            page.listen().await,
            |event: &EventConsoleApiCalled, activity| {
                let error_kinds = [ConsoleApiCalledType::Error, ConsoleApiCalledType::Assert];
                if error_kinds.contains(&event.r#type) {
                    let texts: Vec<String> = event.args.iter().map(format_value).collect();
                    activity.errors.push(texts.join(" "));
                }
            },
        );
        page.record_events(
            page.listen().await,
            |event: &EventExceptionThrown, activity| {
                let details = &event.exception_details;
                let thrown_value = details
                    .exception
                    .as_ref()
                    .map(format_value)
                    .unwrap_or_default();
                activity
                    .errors
                    .push(format!("{} {thrown_value}", details.text));
            },
        );
        page
    }

    async fn listen<T: chromiumoxide::cdp::IntoEventKind>(&self) -> EventStream<T> {
        self.driver.event_listener().await.expect("its events")
    }

    fn record_events<T: Send + Sync + 'static>(
        &self,
        mut events: impl Stream<Item = Arc<T>> + Unpin + Send + 'static,
        record_event: impl Fn(&T, &mut Activity) + Send + 'static,
    ) {
        let activity = Arc::clone(&self.activity);
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                record_event(&event, &mut activity.lock());
            }
        });
    }

    /// Opens an address and waits until its document is loaded.
    pub async fn open(&self, url: &str) {
        let result = self.driver.goto(url).await;
        result.unwrap_or_else(|error| panic!("{url} does not open: {error}"));
    }

    /// Returns the value of a JavaScript expression, which may be a promise.
    pub async fn evaluate<T: DeserializeOwned>(&self, expression: &str) -> T {
        let result = self.driver.evaluate(expression).await;
        let result = result.unwrap_or_else(|error| panic!("{expression}: {error}"));
        result.into_value().expect("a value of this type")
    }

    /// Polls until the expression is true.
    pub async fn until(&self, description: &str, expression: &str) {
        until(description, async || {
            self.evaluate::<bool>(expression).await.then_some(())
        })
        .await;
    }

    /// Returns all requests in order, except for those with `data:` and `about:` URLs.
    pub fn requests(&self) -> Vec<Request> {
        let requests = self.activity.lock().requests.clone();
        let needs_no_network = |request: &Request| {
            request.url.starts_with("data:") || request.url.starts_with("about:")
        };
        requests
            .into_iter()
            .filter(|request| !needs_no_network(request))
            .collect()
    }

    /// Returns all errors of the console, in order.
    pub fn errors(&self) -> Vec<String> {
        self.activity.lock().errors.clone()
    }

    /// Saves the visible part of the page as PNG.
    pub async fn save_screenshot(&self, path: &Path) {
        let params = ScreenshotParams::builder().build();
        let result = self.driver.save_screenshot(params, path).await;
        result.expect("a picture");
    }
}

/// Formats a value of a script as the console shows it.
fn format_value(value: &RemoteObject) -> String {
    let json_text = value.value.as_ref().map(ToString::to_string);
    value
        .description
        .clone()
        .or(json_text)
        .unwrap_or_else(|| "undefined".to_owned())
}

//! Tests of the API documentation page at `/docs` of every service, in a real browser.

use hayward::prepare::SERVICES;
use hayward_tests_browser::{Browser, Page};
use hayward_tests_fleet::TestFleet;
use serde_json::Value;

/// JavaScript expression for the number of operations on the page. Each is one `.opblock` element.
const OPERATION_COUNT: &str = "document.querySelectorAll('.opblock').length";
/// JavaScript expression for the title, which Swagger UI reads from the OpenAPI document.
const TITLE: &str = "document.querySelector('.info .title')?.firstChild?.textContent ?? ''";

async fn fetch_document(fleet: &TestFleet, service: &str) -> Value {
    let client = fleet.client(service, "operator");
    let response = client.get("/v1/openapi.json").await;
    response.expect("the document of the service")
}

fn count_operations(document: &Value) -> usize {
    const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];
    let paths = document["paths"].as_object().expect("paths").values();
    let operations_of_path = |path: &Value| {
        METHODS
            .iter()
            .filter(|method| path[**method].is_object())
            .count()
    };
    paths.map(operations_of_path).sum()
}

async fn assert_page_shows(page: &Page, address: &str, document: &Value) {
    page.open(address).await;
    let count = count_operations(document);
    let all_listed = format!("{OPERATION_COUNT} === {count}");
    page.until(&format!("{count} operations at {address}"), &all_listed)
        .await;
    let title: String = page.evaluate(TITLE).await;
    assert_eq!(title.trim(), document["info"]["title"], "{address}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_every_service_lists_its_operations_and_loads_nothing_else() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let fleet = TestFleet::start().await;
    for (service, _) in SERVICES {
        let base = fleet.url(service);
        let page = browser.open_page().await;
        let document = fetch_document(&fleet, service).await;
        assert!(count_operations(&document) > 4, "{service}: {document}");
        assert_page_shows(&page, &format!("{base}/docs"), &document).await;
        assert_eq!(page.errors(), Vec::<String>::new(), "{service}");
        let other_requests: Vec<_> = page
            .requests()
            .into_iter()
            .filter(|request| !request.url.starts_with(&format!("{base}/")))
            .collect();
        assert_eq!(other_requests, [], "{service}");
        if let Some(folder) = std::env::var_os("HAYWARD_TEST_PICTURES") {
            let picture = std::path::Path::new(&folder).join(format!("{service}.png"));
            page.save_screenshot(&picture).await;
        }
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_ignores_a_document_named_in_its_address() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let fleet = TestFleet::start().await;
    let (base, other) = (fleet.url("blocklist"), fleet.url("node-status"));
    let page = browser.open_page().await;
    let document = fetch_document(&fleet, "blocklist").await;
    for parameter in ["url", "configUrl"] {
        let address = format!("{base}/docs/?{parameter}={other}/v1/openapi.json");
        assert_page_shows(&page, &address, &document).await;
    }
    let requests = page.requests();
    assert!(
        !requests
            .iter()
            .any(|request| request.url.starts_with(other)),
        "{requests:?}"
    );
    browser.close().await;
}

//! What a store answered, seen below the library that hides it: the status and the store's own words.

use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use std::cell::RefCell;
use std::future::Future;

/// An answer that was none of success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observed {
    /// The status of HTTP.
    pub(super) status: u16,
    /// The store's word for it, such as `SlowDown`; empty if it has none.
    pub(super) code: String,
    /// The store's sentence; empty if it has none.
    pub(super) message: String,
}

tokio::task_local! {
    /// The last such answer of this task.
    static LAST: RefCell<Option<Observed>>;
}

/// Runs `request` and says what the last failure was that it met on its way.
pub(super) async fn observe<T>(request: impl Future<Output = T>) -> (T, Option<Observed>) {
    LAST.scope(RefCell::new(None), async {
        let result = request.await;
        (result, LAST.with(|last| last.borrow_mut().take()))
    })
    .await
}

/// Connects as usual, and looks at the answers.
#[derive(Debug)]
pub(crate) struct Observing;

impl HttpConnector for Observing {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Service(inner)))
    }
}

#[derive(Debug)]
struct Service(HttpClient);

#[async_trait::async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await?;
        let status = response.status();
        if status.is_success() || status.as_u16() == 304 {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        // What of it does not come is not needed to know the status.
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let told = |name| element(&text, name).unwrap_or_default();
        let seen = Observed { status: status.as_u16(), code: told("Code"), message: told("Message") };
        // Outside of `observe` nobody asks.
        let _ = LAST.try_with(|last| *last.borrow_mut() = Some(seen));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(bytes)))
    }
}

/// The text of the first XML element `name`, without line breaks.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    Some(inner.chars().take(400).map(|c| if c.is_control() { ' ' } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_answers() {
        let text = "<?xml?><Error><Code>SlowDown</Code><Message>Please\nreduce</Message></Error>";
        assert_eq!(
            (element(text, "Code").as_deref(), element(text, "Message").as_deref()),
            (Some("SlowDown"), Some("Please reduce"))
        );
        assert_eq!(element("<Code>x", "Code"), None);
    }
}

//! The status and message of failed responses, recorded below the library, which hides them.

use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use std::cell::RefCell;
use std::future::Future;

/// A response with an error status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ErrorResponse {
    /// The HTTP status.
    pub(super) status: u16,
    /// The store's error code, such as `SlowDown`; empty if there is none.
    pub(super) code: String,
    /// The store's message; empty if there is none.
    pub(super) message: String,
}

tokio::task_local! {
    /// The last error response of this task.
    static LAST: RefCell<Option<ErrorResponse>>;
}

/// Runs `request`. Returns its result and the last error response that it received.
pub(super) async fn observe<T>(request: impl Future<Output = T>) -> (T, Option<ErrorResponse>) {
    LAST.scope(RefCell::new(None), async {
        let result = request.await;
        (result, LAST.with(|last| last.borrow_mut().take()))
    })
    .await
}

/// A connector that records error responses.
#[derive(Debug)]
pub(crate) struct ObservingConnector;

impl HttpConnector for ObservingConnector {
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
        // If the body cannot be read, the status is recorded alone.
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let field = |name| element(&text, name).unwrap_or_default();
        let error = ErrorResponse { status: status.as_u16(), code: field("Code"), message: field("Message") };
        // This fails outside of `observe`, where the error response is not needed.
        let _ = LAST.try_with(|last| *last.borrow_mut() = Some(error));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(bytes)))
    }
}

/// Returns the text of the first XML element `name`, without line breaks and with at most 400 characters.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    Some(inner.chars().take(400).map(|c| if c.is_control() { ' ' } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_in_responses() {
        let text = "<?xml?><Error><Code>SlowDown</Code><Message>Please\nreduce</Message></Error>";
        assert_eq!(
            (element(text, "Code").as_deref(), element(text, "Message").as_deref()),
            (Some("SlowDown"), Some("Please reduce"))
        );
        assert_eq!(element("<Code>x", "Code"), None);
    }
}

//! One request and its whole response, with the API server's warnings, which kube's own calls drop.
//!
//! In: a request as `kube::core::Request` builds it. Out: the object, or the server's status as an error. Never: a
//! retry.

use axum::http::{HeaderMap, header::CONTENT_TYPE, header::WARNING};
use kube::Client;
use kube::core::Status;
use serde_json::Value;

use super::chain;

/// The limit for a response body, far above any page of a list.
const LIMIT_BYTES: usize = 64 << 20;

/// A request as `kube::core::Request` builds it.
pub type Request = axum::http::Request<Vec<u8>>;

/// The response of an API server to a successful request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The object, the list, or a status.
    pub body: Value,
    /// The warnings: deprecated versions, unknown fields, pods that would be refused.
    pub warnings: Vec<String>,
}

/// Sends a request and reads the response.
///
/// # Errors
/// When there is no response, its status is not a success, or the body is not JSON or larger than 64 MiB.
pub async fn ask(client: &Client, request: Request) -> Result<Answer, kube::Error> {
    let broken = |error: &dyn std::error::Error| kube::Error::Service(chain(error).into());
    let answer = client.send(request.map(kube::client::Body::from)).await?;
    let (status, warnings) = (answer.status(), warnings(answer.headers()));
    let body = axum::body::to_bytes(axum::body::Body::new(answer.into_body()), LIMIT_BYTES);
    let body = body.await.map_err(|error| broken(&error))?;
    if !status.is_success() {
        let status_object = serde_json::from_slice::<Status>(&body).ok().filter(|parsed| parsed.code != 0);
        let status_object = status_object.unwrap_or_else(|| {
            let text: String = String::from_utf8_lossy(&body).trim().chars().take(200).collect();
            Status::failure(&text, "").with_code(status.as_u16())
        });
        return Err(kube::Error::Api(status_object.boxed()));
    }
    let body = serde_json::from_slice(&body).map_err(|error| broken(&error))?;
    Ok(Answer { body, warnings })
}

/// Sends JSON to a server that need be no API server, and reads the JSON of its response.
///
/// # Errors
/// As [`ask`].
pub async fn post(client: &Client, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let body = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
    let request =
        axum::http::Request::builder().method("POST").uri(path).header(CONTENT_TYPE, "application/json");
    let request = request.body(body).map_err(kube::Error::HttpError)?;
    ask(client, request).await.map(|answer| answer.body)
}

fn warnings(headers: &HeaderMap) -> Vec<String> {
    let texts =
        headers.get_all(WARNING).iter().filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
    texts.filter_map(text).collect()
}

/// The text of a header `299 - "text"`, where `\` escapes quotes and itself.
fn text(header: &str) -> Option<String> {
    let (_, quoted) = header.split_once('"')?;
    let mut text = String::new();
    let mut letters = quoted.chars();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            '\\' => text.push(letters.next()?),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_unquoted() {
        let table = [
            (r#"299 - "v1beta1 is deprecated""#, Some("v1beta1 is deprecated")),
            (
                r#"299 - "unknown field \"spec.x\" \\ y" "Thu, 01 Jan 2026 00:00:00 GMT""#,
                Some(r#"unknown field "spec.x" \ y"#),
            ),
            (r#"299 - """#, Some("")),
            (r#"299 - "without end"#, None),
            (r#"299 - "without end\"#, None),
            ("299 - bare", None),
            ("", None),
        ];
        for (header, want) in table {
            assert_eq!(text(header).as_deref(), want, "{header}");
        }
    }
}

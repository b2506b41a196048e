//! Sends a report to a server that takes files over HTTP.

use std::time::Duration;

use anyhow::{Result, anyhow};
use reqwest::StatusCode;
use reqwest::blocking::Client;
use reqwest::header::CONTENT_TYPE;

use super::Archive;
use base::failure::{Class, Classify, Failure};
use model::config::text::HttpUrl;
use transfer::outbox::request;

/// For the connection.
const CONNECT: Duration = Duration::from_secs(15);
/// For the whole request.
const LIMIT: Duration = Duration::from_secs(180);

/// How a server takes a file (RFC 9110).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UploadMethod {
    /// The URL is the file's; one that ends with a slash is that of a directory, and gets the archive's name.
    #[default]
    Put,
    /// The URL is that of a program that takes files.
    Post,
}

/// Sends an archive as the body of one request, through the proxies of the process, to a server that the usual
/// authorities or these (PEM) vouch for. A redirect is not followed: what is sent is for the server that was named.
///
/// # Errors
/// The server cannot be reached, or does not confirm that it has the archive. Of the URL only the server is shown:
/// paths of such URLs are often secrets.
pub fn send(archive: &Archive, url: &HttpUrl, method: UploadMethod, authorities: &[String]) -> Result<()> {
    let parsed = reqwest::Url::parse(url).class(Class::Invalid, || "reading the URL".into())?;
    let what = || format!("sending {} to {}", archive.name, request::origin(url));
    let failed = |why: String| Failure::new(Class::Network, what()).because(anyhow!("{why}"));
    let builder = || Client::builder().connect_timeout(CONNECT).timeout(LIMIT);
    let client = request::client(url, authorities, builder).map_err(failed)?;
    let request = match method {
        UploadMethod::Put if parsed.path().ends_with('/') => {
            client.put(parsed.join(&archive.name).class(Class::Invalid, what)?)
        }
        UploadMethod::Put => client.put(parsed),
        UploadMethod::Post => client.post(parsed),
    };
    let request = request.header(CONTENT_TYPE, "application/gzip").body(archive.bytes.clone());
    let answer = request::send(request).map_err(|error| {
        let hint = "Check the URL, the network of this system, and the proxy of the answers.";
        failed(error.why().to_owned()).hint(hint)
    })?;
    let status = answer.status();
    match status.is_success() {
        true => Ok(()),
        false => Err(failed(format!("the server answered {status}")).hint(advice(status, method)).into()),
    }
}

fn advice(status: StatusCode, method: UploadMethod) -> &'static str {
    match (status, method) {
        (StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED, UploadMethod::Put) => {
            "This server does not take files by PUT there; try POST."
        }
        (StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED, UploadMethod::Post) => {
            "This server does not take files by POST there; try PUT."
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            "Put name and password into the URL, as in https://name:password@host/, or take another URL."
        }
        (status, _) if status.is_redirection() => "Give the URL that the server redirects to.",
        (status, _) if status.is_server_error() => "Try again, or look at the log of the server.",
        _ => "Check the URL.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use testing::reports::{ReportServer, ServerReaction};

    fn sent(path: &str, method: UploadMethod, manner: ServerReaction) -> (Result<()>, Vec<String>) {
        let server = ReportServer::new(&[manner]);
        let archive = Archive { name: "report-1.tar.gz".into(), bytes: b"PACKED".to_vec() };
        let url = format!("{}{path}", server.url).parse().unwrap();
        let result = send(&archive, &url, method, &[]);
        (result, server.requests())
    }

    #[test]
    fn an_archive_is_the_body_of_one_request() {
        for (path, method, line) in [
            ("/logs/", UploadMethod::Put, "PUT /logs/report-1.tar.gz HTTP/1.1"),
            ("/logs/mine?key=a", UploadMethod::Put, "PUT /logs/mine?key=a HTTP/1.1"),
            ("/take/", UploadMethod::Post, "POST /take/ HTTP/1.1"),
        ] {
            let (result, requests) = sent(path, method, ServerReaction::Status(201));
            result.unwrap();
            let [request] = &requests[..] else { panic!("{requests:?}") };
            assert!(request.starts_with(line) && request.ends_with("\r\n\r\nPACKED"), "{request}");
            assert!(request.to_lowercase().contains("content-type: application/gzip"), "{request}");
        }
    }

    #[test]
    fn a_server_that_does_not_take_it_is_named_with_what_to_do_and_without_the_path() {
        for (status, next) in
            [(405, "try POST"), (403, "name and password"), (307, "redirects to"), (500, "Try again")]
        {
            let (result, _) = sent("/MARK-path/", UploadMethod::Put, ServerReaction::Status(status));
            let error = result.unwrap_err();
            assert_eq!(class_of(&error), Class::Network);
            let text = render(&error);
            assert!(text.contains(&status.to_string()) && text.contains(next), "{text}");
            assert!(
                text.contains("sending report-1.tar.gz to http://127.0.0.1") && !text.contains("MARK"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_told() {
        let archive = Archive { name: "report-1.tar.gz".into(), bytes: Vec::new() };
        let error =
            send(&archive, &"http://127.0.0.1:9/MARK".parse().unwrap(), UploadMethod::Put, &[]).unwrap_err();
        let text = render(&error);
        assert!(
            text.contains("http://127.0.0.1:9") && text.contains("next:") && !text.contains("MARK"),
            "{text}"
        );
    }
}

//! The keys of a store over HTTP/1.1, by the store's asynchronous calls: no request holds up a thread while the device
//! works, and requests that wait at the same time share its reads and its syncs.
//!
//! | request | answer |
//! |---|---|
//! | `GET /keys/KEY` | 200 with the value, or 404 |
//! | `PUT /keys/KEY` | 204 when the value (the body) is durable |
//! | `DELETE /keys/KEY` | 204 when that is durable, whether the key was there or not |
//! | `GET /keys?from=KEY&to=KEY&limit=N` | 200 with the pairs from one key up to before another, in their order |
//!
//! Keys are bytes, percent-encoded. A pair is a line: key, tab, value, both percent-encoded. An error of the store is a
//! status code (see [`status`]) with its text as the body; one in the middle of a range cuts the answer short, which the
//! client sees, because its last chunk is missing.

mod body;
mod keys;

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use ringdb::{Db, Durability, ErrorKind, ReadOptions, WriteBatch, WriteOptions};
use tokio::net::TcpListener;

use body::{Answer, Rows};
use keys::{decode, range_of};

/// The longest that one call of the store may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// The largest value that is taken.
const MAX_VALUE: usize = 16 << 20;
/// The longest that a client may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(30);

/// Serves a store until `stop` is ready; then takes no more connections, and gives requests under way so long to end.
pub async fn serve(
    listener: TcpListener,
    db: Db,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> std::io::Result<()> {
    let graceful = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // The client has gone already, or there are no descriptors: others are served meanwhile.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let db = db.clone();
        let service = service_fn(move |request| {
            let db = db.clone();
            async move { Ok::<_, Infallible>(answer(&db, request).await) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD);
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        // A connection that breaks is the client's affair.
        tokio::spawn(async move { drop(connection.await) });
    }
    drop(listener);
    // What has not ended by then goes with the runtime; its futures may be dropped at any time.
    let _ = tokio::time::timeout(grace, graceful.shutdown()).await;
    Ok(())
}

/// What a request is answered with.
async fn answer(db: &Db, request: Request<Incoming>) -> Response<Answer> {
    handle(db, request).await.unwrap_or_else(|(status, why)| plain(status, why))
}

/// An error, as it is told to the client.
type Refusal = (StatusCode, String);

async fn handle(db: &Db, request: Request<Incoming>) -> Result<Response<Answer>, Refusal> {
    let path = request.uri().path();
    if path == "/keys" {
        return match *request.method() {
            Method::GET => range(db, request.uri().query().unwrap_or_default()).await,
            _ => Err(not_allowed()),
        };
    }
    let Some(key) = path.strip_prefix("/keys/") else {
        return Err((StatusCode::NOT_FOUND, "there is nothing but /keys".into()));
    };
    let key = decode(key);
    match *request.method() {
        Method::GET => {
            let value = db.get_async_with(&key, &read_options()).await.map_err(refused)?;
            let value = value.ok_or((StatusCode::NOT_FOUND, "no such key".into()))?;
            let mut response = Response::new(Answer::whole(Bytes::from(value)));
            response.headers_mut().insert(CONTENT_TYPE, BYTES);
            Ok(response)
        }
        Method::PUT => {
            let value = Limited::new(request.into_body(), MAX_VALUE).collect().await.map_err(|e| {
                if e.is::<http_body_util::LengthLimitError>() {
                    (StatusCode::PAYLOAD_TOO_LARGE, format!("a value has {MAX_VALUE} bytes at most"))
                } else {
                    (StatusCode::BAD_REQUEST, e.to_string())
                }
            })?;
            let mut batch = WriteBatch::new();
            batch.put(&key, value.to_bytes());
            write(db, batch).await
        }
        Method::DELETE => {
            let mut batch = WriteBatch::new();
            batch.delete(&key);
            write(db, batch).await
        }
        _ => Err(not_allowed()),
    }
}

const BYTES: hyper::header::HeaderValue = hyper::header::HeaderValue::from_static("application/octet-stream");
const TEXT: hyper::header::HeaderValue = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");

fn read_options() -> ReadOptions {
    ReadOptions::default().with_deadline(DEADLINE)
}

async fn write(db: &Db, batch: WriteBatch) -> Result<Response<Answer>, Refusal> {
    let options = WriteOptions::default().durability(Durability::Sync).with_deadline(DEADLINE);
    db.write_async(batch, &options).await.map_err(refused)?;
    Ok(plain(StatusCode::NO_CONTENT, String::new()))
}

/// The first pair is read before the head is sent: an error there is a status code.
async fn range(db: &Db, query: &str) -> Result<Response<Answer>, Refusal> {
    let (bounds, limit) = range_of(query).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
    let mut pairs = db.range_async_with(bounds, &read_options());
    let first = if limit > 0 { pairs.next().await.transpose().map_err(refused)? } else { None };
    let mut response = Response::new(Answer::rows(Rows::new(first, pairs, limit)));
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    Ok(response)
}

fn plain(status: StatusCode, text: String) -> Response<Answer> {
    let mut response = Response::new(Answer::whole(Bytes::from(text)));
    *response.status_mut() = status;
    if status != StatusCode::NO_CONTENT {
        response.headers_mut().insert(CONTENT_TYPE, TEXT);
    }
    response
}

fn not_allowed() -> Refusal {
    (StatusCode::METHOD_NOT_ALLOWED, "GET, PUT and DELETE of a key, GET of a range".into())
}

fn refused(e: ringdb::Error) -> Refusal {
    (status(&e), e.to_string())
}

/// The status code of an error: 503 for what passes (a full disk, a store that is closing), 504 for a deadline, 400 for
/// a request that the store refuses (a key that is too long), 500 for damage and failures.
pub fn status(e: &ringdb::Error) -> StatusCode {
    match (e, e.kind()) {
        (ringdb::Error::Closed | ringdb::Error::Stopped(_), _) => StatusCode::SERVICE_UNAVAILABLE,
        (_, ErrorKind::Retry | ErrorKind::WouldBlock) => StatusCode::SERVICE_UNAVAILABLE,
        (_, ErrorKind::TimedOut) => StatusCode::GATEWAY_TIMEOUT,
        (ringdb::Error::Invalid(_), _) => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

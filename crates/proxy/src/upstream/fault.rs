//! What can go wrong upstream: whose fault it is, what the client is told, and whether another endpoint may be asked.

use http::StatusCode;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No connection could be made.
    Connect,
    /// A connection was not made in time.
    ConnectTimeout,
    /// The connection ended before an answer began.
    Reset,
    /// An answer ended before it was whole, and the client has seen nothing of it.
    BrokeOff,
    /// The endpoint was taken away while it was waited for.
    Withdrawn,
    /// No answer began in time.
    Timeout,
    /// What came is not HTTP.
    Garbage,
    /// The client's body broke off.
    Body,
    /// The client's body is longer than it may be.
    TooLong,
    /// No endpoint is left to ask.
    Nowhere,
    /// Every endpoint has as many requests as it may have.
    Full,
    /// Too many requests were tried again already.
    Budget,
    /// Another edge does not take it, and has sent it to nobody.
    Declined,
    /// The endpoint says that it has not looked at it (RFC 9113, 8.7).
    Refused,
}

impl Fault {
    /// What the client is told.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Connect | Self::Reset | Self::BrokeOff | Self::Withdrawn | Self::Garbage => {
                StatusCode::BAD_GATEWAY
            }
            Self::ConnectTimeout | Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Body => StatusCode::BAD_REQUEST,
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Nowhere | Self::Full | Self::Budget | Self::Declined | Self::Refused => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The same in a word, for logs.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Connect => "no connection could be made",
            Self::ConnectTimeout => "no connection was made in time",
            Self::Reset => "the connection ended before an answer",
            Self::BrokeOff => "the answer broke off",
            Self::Withdrawn => "the endpoint went away",
            Self::Timeout => "no answer in time",
            Self::Garbage => "the answer is not HTTP",
            Self::Body => "the request's body broke off",
            Self::TooLong => "the body is too long",
            Self::Nowhere => "no endpoint can be asked",
            Self::Full => "every endpoint is full",
            Self::Budget => "too many requests were tried again",
            Self::Declined => "the other cluster does not take it",
            Self::Refused => "the endpoint does not take it",
        }
    }

    /// Whether the endpoint is to blame.
    pub(crate) fn counts_against_endpoint(self) -> bool {
        self.nothing_sent() || matches!(self, Self::Reset | Self::BrokeOff | Self::Timeout | Self::Garbage)
    }

    /// Whether nothing of the request was sent, or looked at, so that it may be sent elsewhere whatever it is.
    pub(crate) fn nothing_sent(self) -> bool {
        self.is_unreachable() || self == Self::Refused
    }

    /// Whether whoever was asked cannot be reached.
    pub(crate) fn is_unreachable(self) -> bool {
        matches!(self, Self::Connect | Self::ConnectTimeout | Self::Declined)
    }

    /// Whether nobody was asked, or nobody was sent anything: the same may be asked elsewhere.
    pub(crate) fn reached_nobody(self) -> bool {
        self.nothing_sent() || matches!(self, Self::Nowhere | Self::Full)
    }

    /// What another edge means that has sent a request to nobody, and answers so.
    pub(crate) fn of_unsent(status: StatusCode) -> Self {
        if status == StatusCode::SERVICE_UNAVAILABLE { Self::Declined } else { Self::Connect }
    }

    /// Whether a request that may be sent twice may be sent elsewhere.
    pub(crate) fn may_repeat(self) -> bool {
        self.nothing_sent() || matches!(self, Self::Reset | Self::BrokeOff | Self::Withdrawn)
    }
}

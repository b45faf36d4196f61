//! `object!`: a kind with metadata, spec and status, readable and writable as a Kubernetes object.

/// Defines a kind's struct, how it is written (with `apiVersion` and `kind`), and its place in the API.
macro_rules! object {
    ($(#[$doc:meta])* $name:ident, $spec:ty, $status:ty, $plural:literal, $scope:ident) => {
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        $(#[$doc])*
        pub struct $name {
            /// Name, labels and the like.
            #[serde(default)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is wanted.
            #[serde(default)]
            pub spec: $spec,
            /// What is seen; written by the hub.
            #[serde(default)]
            pub status: Option<$status>,
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;
                let mut object = serializer.serialize_struct(stringify!($name), 5)?;
                object.serialize_field("apiVersion", $crate::landfall::API_VERSION)?;
                object.serialize_field("kind", stringify!($name))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                match &self.status {
                    Some(status) => object.serialize_field("status", status)?,
                    None => object.skip_field("status")?,
                }
                object.end()
            }
        }

        impl k8s_openapi::Resource for $name {
            const API_VERSION: &'static str = $crate::landfall::API_VERSION;
            const GROUP: &'static str = $crate::landfall::GROUP;
            const KIND: &'static str = stringify!($name);
            const VERSION: &'static str = $crate::landfall::VERSION;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::$scope;
        }

        impl k8s_openapi::Metadata for $name {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }
            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}

pub(super) use object;

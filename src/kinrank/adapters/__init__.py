"""`kinrank.Memory` as a part of other frameworks: one module for each, which needs the extra of its name.

Each ranks what a retriever of the framework found, keeps ids and metadata, and learns from its documents.
"""

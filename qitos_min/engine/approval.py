"""What somebody is asked to approve."""

from .states import ToolApprovalItem as ToolApprovalItem
